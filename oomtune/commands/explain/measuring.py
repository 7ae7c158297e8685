"""What a variation costs: the candidate's batch in a process of its own, which goes on to larger ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from oomtune.commands.explain.bench import Bench
from oomtune.domain import Budget, Candidate, Cost, Kind, Outcome, Point, ProbeSpec, Search

# The sizes to go on to: how many times the one before each is, and how many times the candidate's the largest.
_STRIDE = 1.04
FURTHEST = 64
# For how long to begin another of them: they only tell a search where to begin.
_AFAR_S = 4.0
# Peaks of the same batch, each in a process of its own, may differ by this much; where they are seen to, by more.
NOISE = 0.03


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
        own, failed = self.points[0], self.outcome.further_failed
        most = math.inf if failed is None else failed.batch_size - 1
        return Cost(
            peak_bytes=own.peak_bytes,
            step_ms=own.step_ms * micro_batches,
            largest_batch_size=int(max(own.batch_size, min(_safe(self.points[-1], budget), most))),
        )

    def safe_batch_size(self, budget: Budget) -> int:
        """What should fit by what the candidate itself took."""
        return max(self.candidate.batch_size, _safe(self.points[0], budget))


def _safe(point: Point, budget: Budget) -> int:
    """Memory per sample never rises with the batch, so this much should fit; a line would promise more."""
    return int(point.batch_size * budget.budget_bytes / max(1.0, point.peak_bytes * (1 + NOISE)))


def measure(
    what: str, spec: ProbeSpec, candidate: Candidate, budget: Budget, bench: Bench, *, further: bool = True
) -> Measurement:
    """Run the candidate, and go on from there to the edge of the budget."""
    trial = upwards(candidate) if further else Search(candidate=candidate)
    return Measurement(outcome=bench.run(what, spec, budget, trial), candidate=candidate)


def upwards(candidate: Candidate) -> Search:
    """The candidate, and larger batches in its process up to the edge."""
    sizes = [_next(candidate.batch_size)]
    while sizes[-1] < candidate.batch_size * FURTHEST:
        sizes.append(_next(sizes[-1]))
    return Search(candidate=candidate, further=tuple(sizes), further_within_s=_AFAR_S)


def _next(batch_size: int) -> int:
    return math.ceil(batch_size * _STRIDE)
