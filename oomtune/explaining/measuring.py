"""What a variation costs: a short climb through three sizes, of which one is the candidate's batch."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from oomtune.domain import (
    Budget,
    Candidate,
    Cost,
    Kind,
    Outcome,
    Point,
    ProbeSpec,
    Purpose,
    Stage,
    Trial,
    TriedRemedy,
)
from oomtune.explaining.bench import Bench
from oomtune.explaining.fitting import careful_line
from oomtune.explaining.remedies import Variation

_ENDED = {
    Kind.DEVICE_OOM: "out of memory",
    Kind.HOST_OOM: "out of host memory",
    Kind.TIMEOUT: "it took too long",
}
_LONGEST = 100
# The sizes beside the candidate's. A small one shows what is always there, and one beyond it what the budget holds.
_SMALL = 0.125
_BEYOND = 1.6
_LEAST_S = 60.0
_TIMES_AS_LONG = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a climb showed, and how it ended."""

    outcome: Outcome
    batch_size: int
    """Of the candidate; another one may have fitted, or not."""

    @property
    def here(self) -> Point | None:
        """The candidate's batch, if it fitted."""
        return next((point for point in self.outcome.points if point.batch_size == self.batch_size), None)

    def cost(self, budget: Budget, *, micro_batches: int = 1) -> Cost:
        assert self.here is not None, "asked only of what fitted"
        line = careful_line(peaks_of(self.outcome, budget))
        return Cost(
            peak_bytes=self.here.peak_bytes,
            step_ms=self.here.step_ms * micro_batches,
            largest_batch_size=None if line is None else int(line.edge(budget.budget_bytes)),
        )


def peaks_of(outcome: Outcome, budget: Budget) -> dict[int, int]:
    """The peak of every size that ran; also of one that was over the budget, which is no fit."""
    peaks = {point.batch_size: point.peak_bytes for point in outcome.points}
    size, peak = outcome.failed_batch_size, outcome.peak_bytes
    if outcome.stage is Stage.DONE and size is not None and peak is not None and peak > budget.budget_bytes:
        peaks[size] = peak
    return peaks


def has_room_beyond(peak_bytes: int, budget: Budget) -> bool:
    return peak_bytes * _BEYOND < 0.95 * budget.budget_bytes


def measure(
    what: str, spec: ProbeSpec, candidate: Candidate, budget: Budget, bench: Bench, *, beyond: bool
) -> Measurement:
    """Run a small batch, the candidate's, and one `beyond` it where there should be room."""
    batch = candidate.batch_size
    sizes = {math.ceil(batch * _SMALL), batch, math.ceil(batch * _BEYOND) if beyond else batch}
    climb = tuple(sorted(sizes))
    trial = Trial(purpose=Purpose.CALIBRATE, candidate=candidate.lane.at(climb[0]), climb=climb, every_size=True)
    return Measurement(outcome=bench.run(what, spec, budget, trial), batch_size=batch)


def tried(variation: Variation, budget: Budget, bench: Bench, *, beyond: bool, before_s: float) -> TriedRemedy:
    """The remedy, measured; or why it could not be: one that fails is no failure of the explanation. One that takes
    many times as long as the candidate did without it, such as XLA on a large model, is given up."""
    remedy = TriedRemedy(
        name=variation.name,
        entries=variation.entries,
        micro_batches=variation.micro_batches,
        problem=variation.not_for,
    )
    if variation.not_for:
        return remedy
    settings = variation.spec.trial
    patience_s = min(settings.timeout_s, max(_LEAST_S, _TIMES_AS_LONG * before_s))
    spec = dataclasses.replace(variation.spec, trial=dataclasses.replace(settings, timeout_s=patience_s))
    # XLA compiles anew for each size.
    beyond = beyond and not variation.needs_xla
    measured = measure(variation.name, spec, variation.candidate, budget, bench, beyond=beyond)
    if measured.here is None:
        return dataclasses.replace(remedy, problem=_why(measured.outcome))
    if variation.needs_xla is not None and measured.outcome.jit_compile is not variation.needs_xla:
        return dataclasses.replace(remedy, problem="Keras does not use XLA for this model")
    return dataclasses.replace(remedy, cost=measured.cost(budget, micro_batches=variation.micro_batches))


def _why(outcome: Outcome) -> str:
    if outcome.kind in _ENDED or outcome.error is None:
        return _ENDED.get(outcome.kind, "it failed")
    said = outcome.error.message.splitlines()[0] if outcome.error.message else "it failed"
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
