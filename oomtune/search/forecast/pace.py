"""How long trials take, by those that ran."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from oomtune.domain import Kind, Lane, Purpose, TrialRecord

# A size of a climb takes about as long as this many steps, validation included.
_STEPS_A_SIZE = 6
# And one that does not fit about as long as so many: it ends as soon as that is seen.
_STEPS_TO_FAIL = 2
# It is also spared validation and the epoch's end: beside its steps it takes about this share of a whole trial.
_CUT_SHORT = 0.5

_Course = Literal["climb", "whole", "cut short"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long trials take, by those that ran: what each takes beside its steps, and what a step takes for a token."""

    overheads_s: Mapping[_Course, float]
    token_s: Mapping[Lane, float]
    confirm_steps: int

    def seconds(self, record: TrialRecord) -> float:
        return self.overheads_s[_course(record)] + self.stepping_s(record)

    def stepping_s(self, record: TrialRecord) -> float:
        """What its steps take together."""
        lane = record.trial.candidate.lane
        tokens = sum(lane.at(batch).tokens * steps for batch, steps in _steps(record, self.confirm_steps))
        return tokens * self._token_s(lane)

    def _token_s(self, lane: Lane) -> float:
        """By what ran in the lane itself, or else in the one most like it."""
        alike = max(self.token_s, key=lambda other: (other == lane, other.precision == lane.precision), default=None)
        return 0.0 if alike is None else self.token_s[alike]


def pace_of(history: Sequence[TrialRecord], confirm_steps: int) -> Pace:
    """How long trials have taken so far."""
    largest: dict[Lane, tuple[int, float]] = {}
    for record in history:
        lane = record.trial.candidate.lane
        for batch, step_s, _ in ran(record):
            largest[lane] = max(largest.get(lane, (0, 0.0)), (batch, step_s))
    token_s = {lane: step_s / lane.at(batch).tokens for lane, (batch, step_s) in largest.items()}
    stepping = Pace(overheads_s={}, token_s=token_s, confirm_steps=confirm_steps)
    seen: dict[_Course, list[float]] = {}
    for record in history:
        overhead_s = max(0.0, record.outcome.duration_s - stepping.stepping_s(record))
        seen.setdefault(_course(record), []).append(overhead_s)
    return replace(stepping, overheads_s=_overheads_s({course: statistics.mean(each) for course, each in seen.items()}))


def _overheads_s(seen: Mapping[_Course, float]) -> dict[_Course, float]:
    """Of trials of every course, where only some have been seen. A climb's is not taken for a whole trial's without
    need: in some ways of training each of its sizes begins anew."""
    likely = [seen["climb"]] if "climb" in seen else []
    likely += [seen["cut short"] / _CUT_SHORT] if "cut short" in seen else []
    whole = seen["whole"] if "whole" in seen else min(likely, default=0.0)
    guessed: dict[_Course, float] = {"climb": whole, "whole": whole, "cut short": whole * _CUT_SHORT}
    return guessed | dict(seen)


def _course(record: TrialRecord) -> _Course:
    if record.trial.purpose is Purpose.CALIBRATE:
        return "climb"
    return "whole" if record.outcome.kind is Kind.FITS else "cut short"


def _steps(record: TrialRecord, confirm_steps: int) -> Iterator[tuple[int, int]]:
    """The sizes that a trial ran, and for about how many steps each."""
    outcome, batch = record.outcome, record.trial.candidate.batch_size
    confirms = record.trial.purpose is Purpose.CONFIRM and outcome.kind is Kind.FITS
    if confirms:
        yield batch, confirm_steps + _STEPS_A_SIZE
    elif outcome.kind is Kind.FITS and not outcome.points:
        yield batch, _STEPS_A_SIZE
    for point in (*outcome.points, *outcome.further):
        yield point.batch_size, _STEPS_A_SIZE
    if outcome.kind is not Kind.FITS:
        yield record.ended_at.batch_size, _STEPS_TO_FAIL
    if outcome.further_failed is not None:
        yield outcome.further_failed.batch_size, _STEPS_TO_FAIL


def ran(record: TrialRecord) -> list[tuple[int, float, int]]:
    """The sizes that a trial ran, what a step of each took in seconds, and how many there were of it."""
    outcome = record.outcome
    if outcome.points:
        return [(point.batch_size, point.step_ms / 1000, _STEPS_A_SIZE) for point in outcome.points]
    if outcome.step_ms is None:
        return []
    own = (record.trial.candidate.batch_size, outcome.step_ms / 1000, outcome.steps_run + 1)
    return [own, *((point.batch_size, point.step_ms / 1000, _STEPS_A_SIZE) for point in outcome.further)]
