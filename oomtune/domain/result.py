"""The result of a probe."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from oomtune.domain.run import Run, runs_of
from oomtune.domain.search import Budget, Candidate, Kind, Lane, RematMode, Word
from oomtune.domain.spec import Device, ProbeSpec
from oomtune.domain.trial import Aim, TrialError, TrialRecord


class Verdict(Word):
    TUNED = "tuned"
    STOPPED = "stopped"
    NOTHING_FITS = "nothing_fits"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def exit_code(self) -> int:
        return {"tuned": 0, "nothing_fits": 3, "failed": 6, "stopped": 7, "interrupted": 130}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A candidate that ran and fitted. The peak comes from the confirming trial, if there was one."""

    candidate: Candidate
    peak_bytes: int
    step_ms: float | None
    confirmed_by: TrialRecord | None = None

    @property
    def confirmed_step_ms(self) -> float | None:
        """The step time of the confirming trial, which runs longer, or else of the first run."""
        return (self.confirmed_by.outcome.step_ms if self.confirmed_by else None) or self.step_ms

    @property
    def samples_per_second(self) -> float | None:
        step_ms = self.confirmed_step_ms
        return self.candidate.batch_size * 1000 / step_ms if step_ms else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """The largest batch that ran and fitted in a lane. `edge_known` means that no noticeably larger one fits."""

    lane: Lane
    batch_size: int
    edge_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """A batch size for each range of lengths: up to the first boundary, from there to the second, and so on."""

    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    share_padding: float
    """The share of padding in the batches."""
    confirmed_by: TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The answer of a probe, with every trial behind it."""

    verdict: Verdict
    spec: ProbeSpec
    device: Device
    budget: Budget
    records: tuple[TrialRecord, ...]
    best: Fit | None = None
    refused_precisions: dict[str, str] = field(default_factory=dict)
    """The precisions in which the loss was not finite, each with its error."""
    frontier: tuple[FrontierPoint, ...] = ()
    buckets: Buckets | None = None
    next_larger: tuple[Candidate, Kind] | None = None
    """The smallest larger batch in the winner's lane that ran, and how it ended."""
    problem: TrialError | None = None
    """The reason why there is no confirmed answer."""
    new_trials: int = 0
    environment: dict[str, Any] = field(default_factory=dict)
    tuned_path: str | None = None
    ledger_path: str | None = None
    notices: tuple[str, ...] = ()
    probed_at: str = ""
    """When the search ended, in UTC."""

    @property
    def remat_slowdown(self) -> float | None:
        """How many times longer a sample takes than without rematerialisation; None if unknown."""
        return None if self.best is None else remat_slowdown(self.best.candidate.lane, self.records)


def remat_slowdown(lane: Lane, records: Iterable[TrialRecord]) -> float | None:
    """Return how many times longer a sample takes in this lane than without rematerialisation.

    Compare the largest batch timed without rematerialisation with the nearest batch timed with it. Return None if no
    two batches are close enough.
    """
    if lane.remat is RematMode.NONE:
        return None
    runs = [run for run in runs_of(records) if run.fits and run.step_ms and not run.buckets]
    # Prefer trials whose aim is timing: a climb times its sizes in a process that is already warm.
    timed = [run for run in runs if run.aim is Aim.TIMING] or runs
    without, with_it = _sample_ms(timed, replace(lane, remat=RematMode.NONE)), _sample_ms(timed, lane)
    if not without or not with_it:
        return None
    largest = max(without)
    nearest = min(with_it, key=lambda batch: abs(math.log(batch / largest)))
    # A sample takes less time in a much larger batch, with or without rematerialisation.
    return with_it[nearest] / without[largest] if 0.5 <= nearest / largest <= 2 else None


def _sample_ms(runs: Iterable[Run], lane: Lane) -> dict[int, float]:
    """Return the shortest time per sample in a lane, by batch size."""
    quickest: dict[int, float] = {}
    for run in runs:
        if run.candidate.lane == lane and run.step_ms:
            batch = run.candidate.batch_size
            quickest[batch] = min(run.step_ms / batch, quickest.get(batch, math.inf))
    return quickest
