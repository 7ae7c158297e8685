"""Where the memory of a candidate goes, how it grows, and what each remedy would save."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oomtune.domain.anatomy import Anatomy
from oomtune.domain.search import Budget, Candidate, Word
from oomtune.domain.spec import Device, ProbeSpec
from oomtune.domain.trial import Point


class Certainty(Word):
    """How the largest batch is known: it ran in a process of its own, and a little more did not fit; or it ran, and a
    larger one may too; or it ran, and a larger one fails for another reason than memory; or it did not run."""

    RAN = "ran"
    AT_LEAST = "at_least"
    NO_LARGER = "no_larger"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What it costs to train on the candidate's batch, as measured; and the largest batch that fits."""

    peak_bytes: int
    step_ms: float
    largest_batch_size: int
    certainty: Certainty = Certainty.PREDICTED
    """Of the largest batch. Predictions are careful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRemedy:
    """One thing that may save memory, with what it costs on this model; or why it could not be measured."""

    name: str
    entries: dict[str, Any] = field(default_factory=dict)
    """What turns it on in a spec, by dotted key; empty when it is a change of the model's code."""
    micro_batches: int = 1
    """How many steps train the candidate's batch; the step's time is that of all of them."""
    cost: Cost | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How the peak grows: a fixed part and so much a sample; and what a sample takes at a shorter sequence."""

    points: tuple[Point, ...]
    fixed_bytes: float | None
    """None, as is the next, where memory does not grow with the batch."""
    bytes_per_sample: float | None
    sequence_length: int | None = None
    shorter_length: int | None = None
    bytes_per_token: float | None = None
    """What a sample takes for each token of its own; None, as are the next, where no shorter sequence was run."""
    bytes_per_pair: float | None = None
    """What it takes for each pair of tokens, as attention's scores do."""

    @property
    def doubling(self) -> float | None:
        """How many times as much a sample takes when its sequence doubles: 2 is linear, 4 is all quadratic."""
        if self.sequence_length is None or self.bytes_per_token is None or self.bytes_per_pair is None:
            return None
        pairs = self.bytes_per_pair * self.sequence_length
        whole = self.bytes_per_token + pairs
        return 2 * (self.bytes_per_token + 2 * pairs) / whole if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that an explanation found, at one candidate. The remedy that allows the largest batch comes first."""

    spec: ProbeSpec
    device: Device
    budget: Budget
    candidate: Candidate
    chosen: str
    """Why this candidate."""
    before: Cost
    """What the candidate takes over a whole trial, the one that was looked into, by the allocator's own count."""
    anatomy: Anatomy | None
    growth: Growth
    remedies: tuple[TriedRemedy, ...]
    trials: int
    noise_bytes: int = 0
    """By how much two trials of the same may differ in their peak: less than this saved is nothing."""
    environment: dict[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def saved_bytes(self, remedy: TriedRemedy) -> int:
        """What it takes less than the candidate does, or more where this is negative; 0 within the noise."""
        saved = self.before.peak_bytes - remedy.cost.peak_bytes if remedy.cost else 0
        return saved if abs(saved) > self.noise_bytes else 0
