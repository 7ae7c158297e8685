"""The candidate that an explanation is of: one that fits, with room for what is no remedy after all."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from oomtune.commands.explain.bench import Bench
from oomtune.commands.explain.fitting import careful_line
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

GROWS = "how memory grows with the batch"
_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants explained. `tuned` is the answer of a tuned config, if the spec is one."""

    batch_size: int | None = None
    sequence_length: int | None = None
    tuned: TunedConfig | None = None

    def flags(self) -> tuple[str, ...]:
        """Those that were given: no entry of the spec changes what they ask for."""
        given = {"--batch-size": self.batch_size, "--sequence-length": self.sequence_length}
        return tuple(flag for flag, value in given.items() if value is not None)

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

    def trained(self, spec: ProbeSpec) -> ProbeSpec:
        """The spec with the optimizer that the answer was found with: a search may choose among several."""
        named = self.tuned.training.get("optimizer") if self.tuned else None
        if named is None:
            return spec
        optimizer = named if isinstance(named, str) else ClassConfig(**named)
        return dataclasses.replace(spec, training=dataclasses.replace(spec.training, optimizer=optimizer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    candidate: Candidate
    why: str
    outcome: Outcome | None = None
    """Of the climb that it was found with."""


def choose(spec: ProbeSpec, budget: Budget, asked: Asked, bench: Bench) -> Choice:
    """The candidate asked for, or the answer of a tuned config, or one that takes about half of the budget."""
    space = spec.space
    if asked.sequence_length is not None:
        space = dataclasses.replace(space, sequence_lengths=(asked.sequence_length,))
    answer = asked.answer()
    base = answer or space.lanes()[0].at(space.batch_sizes[0])
    length = asked.sequence_length or base.sequence_length
    if asked.batch_size is not None:
        return Choice(
            candidate=dataclasses.replace(base, batch_size=asked.batch_size, sequence_length=length),
            why="as asked for",
        )
    if answer is not None:
        why = "the answer of this tuned config" if length == answer.sequence_length else "as asked for"
        return Choice(candidate=dataclasses.replace(base, sequence_length=length), why=why)
    if len(space.batch_sizes) == 1:
        return Choice(candidate=base, why="the spec's only batch size")
    return _climbed(spec, space, budget, bench, asked)


def _climbed(spec: ProbeSpec, space: SearchSpace, budget: Budget, bench: Bench, asked: Asked) -> Choice:
    """A climb as a search begins with, in its first lane, but to half of the budget only; to the whole of it, and in
    the shortest lane too, if the smallest batch takes more than that."""
    first = next_trial(space, budget, ())
    assert isinstance(first, Climb), "the search of a space begins with a climb"
    half = Budget(limit_bytes=budget.limit_bytes, headroom=1 - _SHARE * (1 - budget.headroom))
    lane, shortest = first.candidate.lane, min(space.lanes(), key=lambda one: one.sequence_length or 0)
    climbs = [(lane, half), (lane, budget), *([(shortest, budget)] if shortest != lane else [])]
    for lane, within in climbs:
        trial = dataclasses.replace(first, lane=lane)
        outcome = bench.run(GROWS, spec, within, trial)
        if outcome.points:
            aim_bytes, why = half.budget_bytes, "about half of the budget"
            if within is budget:
                aim_bytes = (outcome.points[0].peak_bytes + budget.budget_bytes) // 2
                why = "half way from the smallest batch to the budget"
            return Choice(candidate=lane.at(_batch_for(aim_bytes, outcome, space)), why=why, outcome=outcome)
        if outcome.kind not in (Kind.DEVICE_OOM, Kind.HOST_OOM):
            break
    raise failed(outcome, spec, budget, trial.candidate, asked)


def _batch_for(aim_bytes: int, outcome: Outcome, space: SearchSpace) -> int:
    """The largest batch that should take no more than this, by what a climb showed."""
    ran = [point.batch_size for point in outcome.points if point.peak_bytes <= aim_bytes]
    line = careful_line(_peaks(outcome))
    # A climb's last leap may be a long one: then the line through its end tells of the sizes that were left out.
    below = outcome.batch_size - 1 if isinstance(outcome, Failed) else math.inf
    bound = 0.0 if line is None else min(line.edge(aim_bytes), below)
    return max(size for size in space.batch_sizes if size <= max(bound, *ran))


def _peaks(outcome: Outcome) -> dict[int, int]:
    """The peak of every size that ran; also of one that was over the budget, which is no fit."""
    peaks = {point.batch_size: point.peak_bytes for point in outcome.points}
    if isinstance(outcome, Failed) and outcome.over_headroom and outcome.peak_bytes is not None:
        peaks[outcome.batch_size] = outcome.peak_bytes
    return peaks


def failed(outcome: Outcome, spec: ProbeSpec, budget: Budget, candidate: Candidate, asked: Asked) -> OomtuneError:
    """Why the candidate itself can't be explained."""
    error = outcome.error
    message = error.message if error else "the trial did not come to its end"
    if outcome.kind not in (Kind.DEVICE_OOM, Kind.HOST_OOM):
        return TrialCrashed(message, hint=error.hint if error else "", traceback=error.traceback if error else "")
    return NothingFits(
        f"{candidate} does not fit in {format_bytes(budget.budget_bytes)} ({budget.origin}): {message}",
        hint="\n".join(advice_for(spec, budget, candidate, None, error, flags=asked.flags())),
    )
