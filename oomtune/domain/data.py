"""The data that a spec names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor of a sample; the word `sequence_length` in the shape stands for the value under trial."""

    shape: tuple[int | Literal["sequence_length"], ...]
    dtype: str
    max: float | None = None


Tensors = TensorSpec | dict[str, TensorSpec]
"""One tensor, or several by the names of the model's inputs or outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticData:
    inputs: Tensors
    targets: Tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzData:
    """The names of the arrays: one, or several by the names of the model's inputs or outputs."""

    path: str
    inputs: str | dict[str, str]
    targets: str | dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """Exactly one of its entries is set."""

    synthetic: SyntheticData | None = None
    npz: NpzData | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What one pass over the data showed."""

    samples: int
    """How many there are; an estimate when only some were read."""
    read: int
    """How many of them were read."""
    lengths: tuple[tuple[int, int], ...] = ()
    """Each length that samples have, ascending, with how many have it; empty when samples have no length."""
    largest_input: int | None = None
    """The largest value of integer inputs, if they are integers."""
    largest_target: int | None = None
    """The same of integer targets."""
