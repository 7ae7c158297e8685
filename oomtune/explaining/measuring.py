"""What a variation costs: the candidate's batch in a process of its own, which goes on to the largest that fits."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from oomtune.domain import Budget, Candidate, Cost, Kind, Outcome, Point, ProbeSpec, Purpose, Trial, TriedRemedy
from oomtune.explaining.bench import Bench
from oomtune.explaining.remedies import Variation

_ENDED = {
    Kind.DEVICE_OOM: "out of memory",
    Kind.HOST_OOM: "out of host memory",
    Kind.TIMEOUT: "it took too long",
}
_LONGEST = 100
# The sizes to go on to: how many times the one before each is, and how many times the candidate's the largest.
_STRIDE = 1.04
_FURTHEST = 64
# How long the edge is worth: steps that take longer than this show only the candidate, and a prediction from it.
_AFAR_S = 6.0
# Peaks of the same batch, each in a process of its own, may differ by this much; where they are seen to, by more.
NOISE = 0.03
# Now and then one is off by this much. What a remedy changes by less than that has to show twice.
_DOUBTFUL = 0.2
_LEAST_S = 60.0
_TIMES_AS_LONG = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a trial of a variation showed, and how it ended."""

    outcome: Outcome
    candidate: Candidate

    @property
    def points(self) -> tuple[Point, ...]:
        """The candidate's batch and the larger ones that fitted after it; nothing, if it did not fit itself."""
        peak_bytes = self.outcome.peak_bytes
        if self.outcome.kind is not Kind.FITS or peak_bytes is None:
            return ()
        step_ms = self.outcome.step_ms or 0.0
        own = Point(batch_size=self.candidate.batch_size, peak_bytes=peak_bytes, step_ms=step_ms)
        return (own, *self.outcome.further)

    def cost(self, budget: Budget, *, micro_batches: int = 1) -> Cost:
        points = self.points
        own, last = points[0], points[-1]
        # Memory per sample never rises with the batch, so this much should fit; a line would promise more.
        safe = int(last.batch_size * budget.budget_bytes / max(1.0, last.peak_bytes * (1 + NOISE)))
        ran = self.outcome.further_failed is not None or safe <= last.batch_size
        return Cost(
            peak_bytes=own.peak_bytes,
            step_ms=own.step_ms * micro_batches,
            largest_batch_size=last.batch_size if ran else safe,
            largest_ran=ran,
        )


def measure(
    what: str, spec: ProbeSpec, candidate: Candidate, budget: Budget, bench: Bench, *, further: bool = True
) -> Measurement:
    """Run the candidate, and go on from there to the edge of the budget."""
    sizes = [_next(candidate.batch_size)]
    while sizes[-1] < candidate.batch_size * _FURTHEST:
        sizes.append(_next(sizes[-1]))
    trial = Trial(purpose=Purpose.SEARCH, candidate=candidate, further=tuple(sizes) if further else (), afar_s=_AFAR_S)
    return Measurement(outcome=bench.run(what, spec, budget, trial), candidate=candidate)


def _next(batch_size: int) -> int:
    return math.ceil(batch_size * _STRIDE)


def tried(
    variation: Variation, budget: Budget, bench: Bench, before: Cost, *, noise_bytes: int, before_s: float
) -> TriedRemedy:
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
    further = not variation.needs_xla
    measured = measure(variation.name, spec, variation.candidate, budget, bench, further=further)
    if not measured.points:
        return dataclasses.replace(remedy, problem=_why(measured.outcome))
    if variation.needs_xla is not None and measured.outcome.jit_compile is not variation.needs_xla:
        return dataclasses.replace(remedy, problem="Keras does not use XLA for this model")
    cost = measured.cost(budget, micro_batches=variation.micro_batches)
    changed_bytes = abs(cost.peak_bytes - before.peak_bytes)
    if noise_bytes < changed_bytes < _DOUBTFUL * before.peak_bytes and not variation.needs_xla:
        again = measure(f"{variation.name} once more", spec, variation.candidate, budget, bench, further=False)
        peaks = [cost.peak_bytes, *(point.peak_bytes for point in again.points)]
        nearest = min(peaks, key=lambda peak: abs(peak - before.peak_bytes))
        cost = dataclasses.replace(cost, peak_bytes=nearest)
    return dataclasses.replace(remedy, cost=cost)


def _why(outcome: Outcome) -> str:
    if outcome.kind in _ENDED or outcome.error is None:
        return _ENDED.get(outcome.kind, "it failed")
    said = outcome.error.message.splitlines()[0] if outcome.error.message else "it failed"
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
