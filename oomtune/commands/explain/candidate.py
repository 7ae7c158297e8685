"""Choose the candidate to explain: one that fits, with room to spare for changes that turn out to need more memory."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from oomtune.commands.explain.bench import Bench
from oomtune.commands.explain.growth import careful_line
from oomtune.diagnosis.nothing_fits import advice_for
from oomtune.domain import (
    Budget,
    Candidate,
    ClassConfig,
    Climb,
    Failed,
    Kind,
    Outcome,
    ProbeSpec,
    SearchSpace,
    parse_remat,
)
from oomtune.errors import NothingFits, OomtuneError, TrialCrashed
from oomtune.search import next_trial
from oomtune.storage.tuned import TunedConfig
from oomtune.units import format_bytes

GROWTH = "how memory grows with the batch"
_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user wants explained. `tuned` is the answer to explain, if the spec holds one."""

    batch_size: int | None = None
    sequence_length: int | None = None
    tuned: TunedConfig | None = None

    def flags(self) -> tuple[str, ...]:
        """Return the flags that were given: they override the spec, so editing its entries changes nothing."""
        values = {"--batch-size": self.batch_size, "--sequence-length": self.sequence_length}
        return tuple(flag for flag, value in values.items() if value is not None)

    def answer(self) -> Candidate | None:
        tuned = self.tuned
        if tuned is None:
            return None
        return Candidate(
            batch_size=tuned.batch_size,
            sequence_length=tuned.sequence_length,
            precision=tuned.precision,
            remat=parse_remat(tuned.remat),
        )

    def with_answers_optimizer(self, spec: ProbeSpec) -> ProbeSpec:
        """Return the spec with the optimizer of the answer: a search may choose among several."""
        optimizer = self.tuned.training.get("optimizer") if self.tuned else None
        if optimizer is None:
            return spec
        if not isinstance(optimizer, str):
            optimizer = ClassConfig(**optimizer)
        return dataclasses.replace(spec, training=dataclasses.replace(spec.training, optimizer=optimizer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    candidate: Candidate
    why: str
    climb: Outcome | None = None
    """The outcome of the climb that led to the candidate."""


def choose_candidate(spec: ProbeSpec, budget: Budget, request: Request, bench: Bench) -> Choice:
    """Return the requested candidate, the answer of a tuned config, or one that takes about half of the budget."""
    space = spec.space
    if request.sequence_length is not None:
        space = dataclasses.replace(space, sequence_lengths=(request.sequence_length,))
    answer = request.answer()
    base = answer or space.lanes()[0].at(space.batch_sizes[0])
    length = request.sequence_length or base.sequence_length
    if request.batch_size is not None:
        candidate = dataclasses.replace(base, batch_size=request.batch_size, sequence_length=length)
        return Choice(candidate=candidate, why="as requested")
    if answer is not None:
        why = "the answer of this tuned config" if length == answer.sequence_length else "as requested"
        return Choice(candidate=dataclasses.replace(base, sequence_length=length), why=why)
    if len(space.batch_sizes) == 1:
        return Choice(candidate=base, why="the spec's only batch size")
    return _climb_to_candidate(spec, space, budget, request, bench)


def _climb_to_candidate(spec: ProbeSpec, space: SearchSpace, budget: Budget, request: Request, bench: Bench) -> Choice:
    """Climb the first lane to half of the budget; if the smallest batch takes more, to the whole budget.

    If even that does not fit, climb the shortest lane."""
    first = next_trial(space, budget, ())
    assert isinstance(first, Climb), "the search of a space begins with a climb"
    half = Budget(limit_bytes=budget.limit_bytes, headroom=1 - _SHARE * (1 - budget.headroom))
    lane, shortest = first.candidate.lane, min(space.lanes(), key=lambda lane: lane.sequence_length or 0)
    climbs = [(lane, half), (lane, budget), *([(shortest, budget)] if shortest != lane else [])]
    for lane, within in climbs:
        trial = dataclasses.replace(first, lane=lane)
        outcome = bench.run(GROWTH, spec, within, trial)
        if outcome.points:
            aim_bytes, why = half.budget_bytes, "about half of the budget"
            if within is budget:
                aim_bytes = (outcome.points[0].peak_bytes + budget.budget_bytes) // 2
                why = "half way from the smallest batch to the budget"
            batch_size = _largest_batch_below(aim_bytes, outcome, space)
            return Choice(candidate=lane.at(batch_size), why=why, climb=outcome)
        if outcome.kind not in (Kind.DEVICE_OOM, Kind.HOST_OOM):
            break
    raise candidate_error(outcome, spec, budget, trial.candidate, request)


def _largest_batch_below(aim_bytes: int, climb: Outcome, space: SearchSpace) -> int:
    ran = [point.batch_size for point in climb.points if point.peak_bytes <= aim_bytes]
    line = careful_line(_peaks(climb))
    # The last step of a climb may be long; the line through its end covers the sizes in between.
    bound = (
        0.0
        if line is None
        else min(line.edge(aim_bytes), climb.batch_size - 1 if isinstance(climb, Failed) else math.inf)
    )
    return max(size for size in space.batch_sizes if size <= max(bound, *ran))


def _peaks(climb: Outcome) -> dict[int, int]:
    """Return the peak of every size that ran, including one that ran over the budget."""
    peaks = {point.batch_size: point.peak_bytes for point in climb.points}
    if isinstance(climb, Failed) and climb.over_headroom and climb.peak_bytes is not None:
        peaks[climb.batch_size] = climb.peak_bytes
    return peaks


def candidate_error(
    outcome: Outcome, spec: ProbeSpec, budget: Budget, candidate: Candidate, request: Request
) -> OomtuneError:
    """Return the error for a candidate that can't be explained because it does not run."""
    error = outcome.error
    message = error.message if error else "the trial did not finish"
    if outcome.kind not in (Kind.DEVICE_OOM, Kind.HOST_OOM):
        return TrialCrashed(message, hint=error.hint if error else "", traceback=error.traceback if error else "")
    return NothingFits(
        f"{candidate} does not fit in {format_bytes(budget.budget_bytes)} ({budget.origin}): {message}",
        hint="\n".join(advice_for(spec, budget, candidate, None, error, flags=request.flags())),
    )
