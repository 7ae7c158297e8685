"""Run variations of a spec, one trial each, and read what a trial shows of the sizes that it ran."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from oomtune.commands.prepare import Prepared
from oomtune.domain import Budget, Candidate, Cost, Kind, Outcome, Point, ProbeSpec, Search, Trial
from oomtune.domain.observer import Observer, SilentObserver

# Larger sizes that a trial goes on to: each this many times the one before, up to this many times the candidate's.
_STRIDE = 1.04
MAX_GROWTH = 64
# How long a trial may start further sizes; they only show a search where to begin.
_FURTHER_WITHIN_S = 4.0
# Peaks of the same batch in different processes differ by up to this share, and by more where more was seen.
NOISE = 0.03


class ExplainObserver(Observer, Protocol):
    """An observer that also receives the purpose of each trial."""

    def measuring(self, what: str, trial: Trial, number: int) -> None: ...

    def measured(self, what: str, outcome: Outcome, number: int) -> None: ...


class SilentExplainObserver(SilentObserver):
    """Ignores everything."""

    def measuring(self, what: str, trial: Trial, number: int) -> None: ...

    def measured(self, what: str, outcome: Outcome, number: int) -> None: ...


class Bench(Protocol):
    """Runs trials of variations of one spec."""

    @property
    def trials(self) -> int: ...

    def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome: ...


class ForkBench:
    """Runs trials in processes forked from the prepared worker."""

    def __init__(self, prepared: Prepared, observer: ExplainObserver) -> None:
        self.trials = 0
        self._prepared = prepared
        self._observer = observer

    def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
        self.trials += 1
        self._observer.measuring(what, trial, self.trials)
        outcome = self._prepared.runner(spec=spec, budget=budget).run(trial)
        self._observer.measured(what, outcome, self.trials)
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The outcome of a candidate and the larger sizes that its trial went on to."""

    outcome: Outcome
    candidate: Candidate

    @property
    def points(self) -> tuple[Point, ...]:
        """The candidate's batch and the larger ones that fitted after it; empty if the candidate did not fit."""
        peak_bytes = self.outcome.peak_bytes
        if self.outcome.kind is not Kind.FITS or peak_bytes is None:
            return ()
        step_ms = self.outcome.step_ms or 0.0
        own = Point(batch_size=self.candidate.batch_size, peak_bytes=peak_bytes, step_ms=step_ms)
        return (own, *self.outcome.further)

    def cost(self, budget: Budget, *, micro_batches: int = 1) -> Cost:
        own, failed = self.points[0], self.outcome.further_failed
        bound = math.inf if failed is None else failed.batch_size - 1
        return Cost(
            peak_bytes=own.peak_bytes,
            step_ms=own.step_ms * micro_batches,
            largest_batch_size=int(max(own.batch_size, min(_safe_batch_size(self.points[-1], budget), bound))),
        )

    def safe_batch_size(self, budget: Budget) -> int:
        """Return a batch size that should fit, judging by the peak of the candidate alone."""
        return max(self.candidate.batch_size, _safe_batch_size(self.points[0], budget))


def _safe_batch_size(point: Point, budget: Budget) -> int:
    """Scale in proportion: memory per sample never rises with the batch. A line would promise more."""
    return int(point.batch_size * budget.budget_bytes / max(1.0, point.peak_bytes * (1 + NOISE)))


def measure(
    what: str, spec: ProbeSpec, candidate: Candidate, budget: Budget, bench: Bench, *, further: bool = True
) -> Measurement:
    """Run the candidate and, with `further`, larger sizes in the same process up to the edge of the budget."""
    trial = with_larger_sizes(candidate) if further else Search(candidate=candidate)
    return Measurement(outcome=bench.run(what, spec, budget, trial), candidate=candidate)


def with_larger_sizes(candidate: Candidate) -> Search:
    """Return a trial of the candidate that goes on to larger sizes up to the edge of the budget."""
    sizes = [math.ceil(candidate.batch_size * _STRIDE)]
    while sizes[-1] < candidate.batch_size * MAX_GROWTH:
        sizes.append(math.ceil(sizes[-1] * _STRIDE))
    return Search(candidate=candidate, further=tuple(sizes), further_within_s=_FURTHER_WITHIN_S)
