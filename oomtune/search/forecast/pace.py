"""How long trials take, by those that ran."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from oomtune.domain import Lane, Purpose, Run, TrialRecord, runs_of
from oomtune.search.plan import steps_of
from oomtune.search.tuning import TUNING


class Course(Enum):
    """How a trial goes, as far as that decides what it costs beside its steps."""

    CLIMB = "climb"
    WHOLE = "whole"
    CUT_SHORT = "cut short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a trial takes beside its steps, by its course, and what a step takes for a token."""

    overhead_s: Mapping[Course, float]
    token_s: Mapping[Lane, float]
    confirm_steps: int

    def seconds(self, history: Sequence[TrialRecord]) -> float:
        """Return how long these trials take."""
        return sum(self.overhead_s[_course(trial)] + self.stepping_s(trial) for trial in _trials(history))

    def stepping_s(self, trial: Iterable[Run]) -> float:
        """Return how long the steps of a trial take together."""
        return sum(
            run.candidate.tokens * steps_of(run, self.confirm_steps) * self._token_s(run.candidate.lane)
            for run in trial
        )

    def _token_s(self, lane: Lane) -> float:
        """Return the time of a token in this lane, or else in the lane most like it."""
        alike = max(self.token_s, key=lambda other: (other == lane, other.precision == lane.precision), default=None)
        return 0.0 if alike is None else self.token_s[alike]


def pace_of(history: Sequence[TrialRecord], confirm_steps: int) -> Pace:
    """Return how long trials have taken so far."""
    timed = [run for run in runs_of(history) if run.step_ms is not None]
    largest: dict[Lane, Run] = {}
    for run in sorted(timed, key=lambda run: run.candidate.batch_size):
        largest[run.candidate.lane] = run
    token_s = {lane: (run.step_ms or 0.0) / 1000 / run.candidate.tokens for lane, run in largest.items()}
    pace = Pace(overhead_s={}, token_s=token_s, confirm_steps=confirm_steps)
    measured: dict[Course, list[float]] = {}
    for trial in _trials(history):
        duration_s = max(run.duration_s or 0.0 for run in trial)
        measured.setdefault(_course(trial), []).append(max(0.0, duration_s - pace.stepping_s(trial)))
    return replace(pace, overhead_s=_overheads({course: statistics.mean(each) for course, each in measured.items()}))


def _overheads(measured: Mapping[Course, float]) -> dict[Course, float]:
    """Guess the overheads that were not measured from those that were. A climb's is not taken for a whole trial's
    without need: in some ways of training each of its sizes begins anew."""
    likely = [measured[Course.CLIMB]] if Course.CLIMB in measured else []
    likely += [measured[Course.CUT_SHORT] / TUNING.cut_short] if Course.CUT_SHORT in measured else []
    whole = measured.get(Course.WHOLE, min(likely, default=0.0))
    guesses = {Course.CLIMB: whole, Course.WHOLE: whole, Course.CUT_SHORT: whole * TUNING.cut_short}
    return guesses | dict(measured)


def _trials(history: Sequence[TrialRecord]) -> list[list[Run]]:
    return [list(trial) for _, trial in itertools.groupby(runs_of(history), key=lambda run: run.trial_number)]


def _course(trial: Sequence[Run]) -> Course:
    if trial[0].purpose is Purpose.CALIBRATE:
        return Course.CLIMB
    return Course.WHOLE if trial[0].fits else Course.CUT_SHORT
