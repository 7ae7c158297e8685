"""What a probe found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oomtune.domain.search import Budget, Candidate, Kind, Lane, _Word
from oomtune.domain.spec import Device, ProbeSpec
from oomtune.domain.trial import TrialError, TrialRecord


class Verdict(_Word):
    TUNED = "tuned"
    STOPPED = "stopped"
    NOTHING_FITS = "nothing_fits"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A candidate that ran and fitted, with what was seen when it did; by the confirm run, once there is one."""

    candidate: Candidate
    peak_bytes: int
    step_ms: float | None
    confirmed_by: TrialRecord | None = None

    @property
    def confirmed_step_ms(self) -> float | None:
        """The confirm run's step, which is timed longer; the first run's until there is one."""
        return (self.confirmed_by.outcome.step_ms if self.confirmed_by else None) or self.step_ms

    @property
    def samples_per_second(self) -> float | None:
        step_ms = self.confirmed_step_ms
        return self.candidate.batch_size * 1000 / step_ms if step_ms else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """The largest batch that ran and fitted in a lane, and whether that is known to be its edge."""

    lane: Lane
    batch_size: int
    edge_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """A batch size for each range of lengths: samples up to the first boundary, then up to the second, and so on."""

    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    share_padding: float
    """What is left of padding in all batches of the data."""
    confirmed_by: TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe found, with every trial it stands on."""

    verdict: Verdict
    spec: ProbeSpec
    device: Device
    budget: Budget
    records: tuple[TrialRecord, ...]
    best: Fit | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    buckets: Buckets | None = None
    next_larger: tuple[Candidate, Kind] | None = None
    """The smallest larger batch in the winner's lane that was tried, and how it ended."""
    problem: TrialError | None = None
    """Why there is no confirmed answer, when there is none."""
    new_trials: int = 0
    environment: dict[str, Any] = field(default_factory=dict)
    tuned_path: str | None = None
    ledger_path: str | None = None
    notices: tuple[str, ...] = ()
