"""Where the memory of a candidate goes, how it grows, and what each remedy would save."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oomtune.domain.anatomy import Anatomy
from oomtune.domain.search import Budget, Candidate, Word
from oomtune.domain.spec import Device, ProbeSpec
from oomtune.domain.trial import Point


class Certainty(Word):
    """How certain the largest batch is."""

    RAN = "ran"
    """It ran in a fresh process, and a slightly larger one did not fit."""
    AT_LEAST = "at_least"
    """It ran; a larger one may fit too."""
    NO_LARGER = "no_larger"
    """It ran; larger ones fail for a reason other than memory."""
    PREDICTED = "predicted"
    """It did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The measured cost of training on the candidate's batch, and the largest batch that fits."""

    peak_bytes: int
    step_ms: float
    largest_batch_size: int
    certainty: Certainty = Certainty.PREDICTED
    """How certain the largest batch is. Predictions are conservative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRemedy:
    """A change that may save memory, with its cost on this model or the reason why no measurement was possible."""

    name: str
    entries: dict[str, Any] = field(default_factory=dict)
    """The spec entries that apply the remedy, by dotted key; empty if only a change to the model's code does."""
    micro_batches: int = 1
    """How many micro-batches make up the candidate's batch. The step time covers all of them."""
    cost: Cost | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How the peak grows with the batch size, and the memory of a sample with the sequence length."""

    points: tuple[Point, ...]
    fixed_bytes: float | None
    """Memory that no sample adds to. Like `bytes_per_sample`, None if memory does not grow with the batch size."""
    bytes_per_sample: float | None
    sequence_length: int | None = None
    shorter_length: int | None = None
    bytes_per_token: float | None = None
    """The memory of a sample per token. Like `bytes_per_pair`, None if no shorter sequence ran."""
    bytes_per_pair: float | None = None
    """The memory of a sample per pair of tokens, such as attention scores."""

    @property
    def doubling(self) -> float | None:
        """The factor by which the memory of a sample grows when its sequence doubles: 2 is linear, 4 is quadratic."""
        if self.sequence_length is None or self.bytes_per_token is None or self.bytes_per_pair is None:
            return None
        pairs = self.bytes_per_pair * self.sequence_length
        whole = self.bytes_per_token + pairs
        return 2 * (self.bytes_per_token + 2 * pairs) / whole if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where the memory of one candidate goes. The remedy that allows the largest batch comes first."""

    spec: ProbeSpec
    device: Device
    budget: Budget
    candidate: Candidate
    chosen: str
    """The reason for choosing this candidate."""
    before: Cost
    """The cost of the candidate without any remedy, as the allocator counts it."""
    anatomy: Anatomy | None
    growth: Growth
    remedies: tuple[TriedRemedy, ...]
    trials: int
    noise_bytes: int = 0
    """The difference to expect between the peaks of two equal trials. A smaller saving counts as none."""
    environment: dict[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def saved_bytes(self, remedy: TriedRemedy) -> int:
        """Return the memory that the remedy saves; negative if it costs memory, 0 within the noise."""
        saved = self.before.peak_bytes - remedy.cost.peak_bytes if remedy.cost else 0
        return saved if abs(saved) > self.noise_bytes else 0
