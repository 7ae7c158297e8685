"""What may be tried: candidates, lanes, the space they span, and the budget they must stay within."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Word(str, Enum):
    """A closed set of words that read as themselves in JSON, YAML and messages."""

    def __str__(self) -> str:
        return str(self.value)


class Purpose(Word):
    CALIBRATE = "calibrate"
    SEARCH = "search"
    CONFIRM = "confirm"


class Kind(Word):
    FITS = "fits"
    DEVICE_OOM = "device_oom"
    HOST_OOM = "host_oom"
    TIMEOUT = "timeout"
    CRASH = "crash"


class Stage(Word):
    BUILD = "build"
    DATA = "data"
    WARMUP = "warmup"
    TRAIN = "train"
    VALIDATE = "validate"
    DONE = "done"


class Objective(Word):
    TOKENS = "tokens"
    BATCH_SIZE = "batch_size"
    SEQUENCE_LENGTH = "sequence_length"
    THROUGHPUT = "throughput"


def is_half(precision: str) -> bool:
    return precision.endswith("float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """`remat` is `none`, `full` or patterns of layer names with commas between; an optimizer of None is the spec's."""

    sequence_length: int | None
    precision: str
    remat: str = "none"
    optimizer: str | None = None

    @property
    def half(self) -> bool:
        """Is training in half precision?"""
        return is_half(self.precision)

    def at(self, batch_size: int) -> Candidate:
        return Candidate(
            batch_size=batch_size,
            sequence_length=self.sequence_length,
            precision=self.precision,
            remat=self.remat,
            optimizer=self.optimizer,
        )

    @property
    def kind(self) -> tuple[str, str | None]:
        """What sets lanes so far apart that the memory of one says nothing of the other's."""
        return self.remat, self.optimizer

    def __str__(self) -> str:
        length = f"sequence {self.sequence_length}, " if self.sequence_length is not None else ""
        remat = f", remat {self.remat}" if self.remat != "none" else ""
        return f"{length}{self.precision}{remat}{f', {self.optimizer}' if self.optimizer else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    batch_size: int
    sequence_length: int | None = None
    precision: str = "float32"
    remat: str = "none"
    optimizer: str | None = None

    @property
    def lane(self) -> Lane:
        return Lane(
            sequence_length=self.sequence_length,
            precision=self.precision,
            remat=self.remat,
            optimizer=self.optimizer,
        )

    @property
    def tokens(self) -> int:
        """Batch size times sequence length; samples when there is no sequence axis."""
        return self.batch_size * (self.sequence_length or 1)

    def __str__(self) -> str:
        return f"batch {self.batch_size}, {self.lane}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """What may be tried, and what counts as better. Sizes ascend; precisions and optimizers are most preferred
    first, and a later optimizer is for when nothing fits with those before it."""

    batch_sizes: Sequence[int]
    sequence_lengths: tuple[int, ...] | None = None
    precisions: tuple[str, ...] = ("float32",)
    remats: tuple[str, ...] = ("none",)
    optimizers: tuple[str | None, ...] = (None,)
    effective_batch_size: int | None = None
    """What micro-batches are to add up to."""
    objective: Objective = Objective.TOKENS
    resolution: float = 0.02
    every_lane: bool = False
    confirm_steps: int = 20
    """How long an answer must run."""
    length_counts: tuple[tuple[int, int], ...] = ()
    """The lengths that samples of the data have, ascending, with how many have each; empty where it has none."""
    most_buckets: int = 0
    """How many buckets of lengths the answer may have."""

    def lanes(self) -> list[Lane]:
        """Every lane, most preferred first: the longest sequence, then the precision listed first."""
        lengths: Sequence[int | None] = (None,) if self.sequence_lengths is None else self.sequence_lengths[::-1]
        return [
            Lane(sequence_length=length, precision=precision, remat=remat, optimizer=optimizer)
            for optimizer in self.optimizers
            for length in lengths
            for precision in self.precisions
            for remat in self.remats
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`limit_bytes` is what the device gives; `budget_bytes` is what a configuration may use of it at its peak."""

    limit_bytes: int
    headroom: float = 0.05

    @classmethod
    def of(cls, limit_bytes: int, budget_bytes: int) -> Budget:
        return cls(limit_bytes=limit_bytes, headroom=1 - budget_bytes / limit_bytes)

    @property
    def budget_bytes(self) -> int:
        return math.floor(self.limit_bytes * (1 - self.headroom))
