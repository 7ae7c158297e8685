"""What an opened dataset gives, whatever kind it is, and how much of it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

Arrays = Any
"""One numpy array, or a nest of them: see `nesting`."""
Sample = tuple[Arrays, ...]
"""Inputs and targets; a pipeline of the user's own may also give a third side, the weights of samples in the loss."""
SIDES = ("inputs", "targets", "weights")


class Axis(Enum):
    """What is known of the first axis of an input before samples are read."""

    VARIES = "varies"
    FIXED = "fixed"
    """All samples have the same; trailing zeros of whole numbers are padding."""
    UNKNOWN = "unknown"
    NOT_A_SEQUENCE = "not a sequence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is read at most."""

    whole_bytes: int = 512 * 1024**2
    """Files of lines that are larger together are read in stretches."""
    stretches_bytes: int = 256 * 1024**2
    """How much these stretches have in all."""
    samples: int = 1_000_000
    """Streams that can't be read in stretches end here."""
    images: int = 20_000
    """Decoding is slow and every image has the same size: this many are decoded, evenly spaced."""
    endless: int = 10_000
    """Of a pipeline that never ends, this many."""
    worst: int = 64
    worst_bytes: int = 128 * 1024**2


def _all_read() -> int | None:
    return None


@dataclass(slots=True, kw_only=True)
class Source:
    """An opened dataset."""

    samples: Iterable[Sample] = ()
    """One sample at a time, without a batch axis; ragged along axis 0. None of whole arrays."""
    share_read: Callable[[], float] = lambda: 1.0
    """0 to 1, for a progress bar."""
    partial: Callable[[], int | None] = _all_read
    """None when all was read, else how many samples there are by estimate. Asked when the samples are at their end."""
    held: Sample | None = None
    """Whole arrays that training keeps in memory, side by side as in a sample."""
    dataset: tf.data.Dataset | None = None
    """A pipeline of single samples that training runs."""
    where: Callable[[], str] = lambda: ""
    """The place of the sample that was given last: its file and line, if it has them."""
    name: str = "the dataset"
    """What to call it in messages: its file, or the entry of the spec."""
    key: str = ""
    """The entry of the spec that names the file."""
    axes: Mapping[str, Axis] = field(default_factory=dict)
    """Of each input by name, of a single one by the empty name; fixed if not there."""


def by_name(entries: Any) -> dict[str, Any]:
    """The spec's entries by the names of the model's inputs; a single one has the empty name."""
    return entries if isinstance(entries, dict) else {"": entries}


def each(function: Callable[[Any], Any], entries: Any) -> Any:
    """What the function makes of one entry of the spec, or of each of several by their names."""
    if isinstance(entries, dict):
        return {name: function(entry) for name, entry in entries.items()}
    return function(entries)
