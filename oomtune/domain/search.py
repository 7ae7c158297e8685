"""The terms of a search: candidates, lanes, the space they span, and the budget they must stay within."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from oomtune.units import format_bytes


class Word(str, Enum):
    """A closed set of words, each written as itself in JSON, YAML and messages."""

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

    @property
    def words(self) -> str:
        """The kind in plain words."""
        return {
            "fits": "fits",
            "device_oom": "out of memory",
            "host_oom": "out of host memory",
            "timeout": "timed out",
            "crash": "failed",
        }[self.value]


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


class RematMode(Word):
    """Recompute nothing, or every part of the model where recomputing pays."""

    NONE = "none"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class RematLayers:
    """Recompute the layers whose names match one of these patterns."""

    patterns: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join(self.patterns)

    @classmethod
    def parse(cls, text: object) -> RematLayers:
        """Return the patterns of a comma-joined text. Raise `ValueError` for anything else."""
        if not isinstance(text, str) or text in tuple(RematMode):
            raise ValueError(f"expected patterns of layer names with commas between; got {text!r}")
        return cls(tuple(text.split(",")))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        # Ledgers and worker orders hold the patterns as one comma-joined string.
        from pydantic_core import core_schema

        to_text = core_schema.to_string_ser_schema()
        return core_schema.no_info_plain_validator_function(cls.parse, serialization=to_text)


Remat = RematMode | RematLayers


def parse_remat(text: str) -> Remat:
    """Parse `none`, `full` or comma-joined layer patterns."""
    return RematMode(text) if text in tuple(RematMode) else RematLayers.parse(text)


def is_half(precision: str) -> bool:
    return precision.endswith("float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A candidate without its batch size. An optimizer of None means the spec's own."""

    sequence_length: int | None
    precision: str
    remat: Remat = RematMode.NONE
    optimizer: str | None = None

    @property
    def is_half(self) -> bool:
        """Whether training runs in half precision."""
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
    def kind(self) -> tuple[Remat, str | None]:
        """The settings that change memory so much that lanes of two kinds predict nothing about each other."""
        return self.remat, self.optimizer

    def __str__(self) -> str:
        length = f"sequence {self.sequence_length}, " if self.sequence_length is not None else ""
        remat = f", remat {self.remat}" if self.remat is not RematMode.NONE else ""
        return f"{length}{self.precision}{remat}{f', {self.optimizer}' if self.optimizer else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    batch_size: int
    sequence_length: int | None = None
    precision: str = "float32"
    remat: Remat = RematMode.NONE
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
    """What the search may try, and its objective. Sizes ascend. Precisions and optimizers come most preferred first;
    the search tries an optimizer only if nothing fits with the ones before it."""

    batch_sizes: Sequence[int]
    sequence_lengths: tuple[int, ...] | None = None
    precisions: tuple[str, ...] = ("float32",)
    remats: tuple[Remat, ...] = (RematMode.NONE,)
    optimizers: tuple[str | None, ...] = (None,)
    effective_batch_size: int | None = None
    """The batch size that accumulated micro-batches add up to."""
    objective: Objective = Objective.TOKENS
    resolution: float = 0.02
    every_lane: bool = False
    confirm_steps: int = 20
    """The number of steps that confirm an answer."""
    length_counts: tuple[tuple[int, int], ...] = ()
    """Pairs of a sample length and the number of samples, in ascending order; empty if samples have no length."""
    most_buckets: int = 0
    """The largest number of length buckets in an answer."""

    def lanes(self) -> list[Lane]:
        """Return every lane, most preferred first: the longest sequence, then the precision listed first."""
        lengths: Sequence[int | None] = (None,) if self.sequence_lengths is None else self.sequence_lengths[::-1]
        return [
            Lane(sequence_length=length, precision=precision, remat=remat, optimizer=optimizer)
            for optimizer in self.optimizers
            for length in lengths
            for precision in self.precisions
            for remat in self.remats
        ]

    def only(self, lane: Lane) -> SearchSpace:
        """Return the space with this lane as the only one."""
        return replace(
            self,
            sequence_lengths=None if lane.sequence_length is None else (lane.sequence_length,),
            precisions=(lane.precision,),
            remats=(lane.remat,),
            optimizers=(lane.optimizer,),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`limit_bytes` is the memory of the device; `budget_bytes` is the part that a candidate may use at its peak."""

    limit_bytes: int
    headroom: float = 0.05

    @classmethod
    def of(cls, limit_bytes: int, budget_bytes: int) -> Budget:
        return cls(limit_bytes=limit_bytes, headroom=1 - budget_bytes / limit_bytes)

    @property
    def origin(self) -> str:
        """Where the budget comes from: `the limit of 2.0 GiB less 5% headroom`."""
        return f"the limit of {format_bytes(self.limit_bytes)} less {self.headroom:.0%} headroom"

    @property
    def budget_bytes(self) -> int:
        return math.floor(self.limit_bytes * (1 - self.headroom))
