"""What a trial shows beside its outcome: what will matter in longer training, and the allocator at a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingKind = Literal["leak", "retrace", "kept_tensors", "checkpoint", "remat", "batch_size", "fits", "loss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that did no harm in a short run and may in a longer one, or a setting that does nothing here."""

    kind: FindingKind
    message: str
    where: str = ""
    """The line to change, as file:line; empty where it is not known."""
    hint: str = ""
    bytes_per_step: int | None = None
    """By how much memory grows with each step because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorState:
    """What the device's allocator held at the moment when it found no room."""

    allocator: str
    limit_bytes: int
    in_use_bytes: int
    largest_free_bytes: int
    """The largest piece that it could still have given."""
    largest_held_bytes: int
    """The largest tensor among those in use."""
    fragmentation: float
    """TensorFlow's own measure: the share of the free memory that is not in its largest piece."""
    requested_bytes: int | None = None
    """What was asked for; unknown when the trial was ended before the allocator said so."""

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.in_use_bytes
