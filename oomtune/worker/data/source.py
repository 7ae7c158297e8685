"""Shared by every kind of data: samples, their sources, the bounds of a scan, and common errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomtune.errors import DataUnreadable
from oomtune.spec.files import matching_paths
from oomtune.worker.nesting import Nest
from oomtune.worker.process.exceptions import reason

if TYPE_CHECKING:
    import tensorflow as tf

Sample = tuple[Nest, ...]
"""Inputs, targets and, from the user's own pipelines, the sample's weights in the loss. All are NumPy arrays."""
SIDES = ("inputs", "targets", "weights")

_MAX_NAMES_SHOWN = 20
_GRAPH_NODES = re.compile(r"\{\{.*?\}\}|\[\[.*|\[Op:.*", re.DOTALL)
_PIPELINE = re.compile(r"^Error in user-defined function passed to \S+ transformation with iterator: \S+: ")


class Axis(Enum):
    """The first axis of an input, as far as it is known before reading samples."""

    VARIES = "varies"
    FIXED = "fixed"
    """The same size in all samples. Trailing zeros of whole numbers are padding."""
    UNKNOWN = "unknown"
    NOT_A_SEQUENCE = "not a sequence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much a scan reads at most."""

    whole_bytes: int = 512 * 1024**2
    """Files of lines that are larger in total are read in stretches."""
    stretches_bytes: int = 256 * 1024**2
    """The total size of the stretches."""
    samples: int = 1_000_000
    """The limit for streams that can't be read in stretches."""
    images: int = 20_000
    """The number of images to decode, evenly spaced: decoding is slow, and all images get the same size."""
    endless: int = 10_000
    """The limit for pipelines that never end."""
    worst: int = 64
    worst_bytes: int = 128 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldArrays:
    """Whole arrays that training keeps in memory."""

    arrays: Sample


@dataclass(slots=True, kw_only=True)
class Stream:
    """Samples that are read one at a time."""

    samples: Iterable[tuple[Sample, str]]
    """Each sample, without a batch axis, and its place, such as file and line, if it has one."""
    name: str
    """The name of the data in messages: its file, or the entry of the spec."""
    key: str = ""
    """The entry of the spec that names the file, empty without a file."""
    share_read: Callable[[int], float]
    """From 0 to 1 after this many samples, for a progress bar."""
    estimate_total: Callable[[int], int | None]
    """The estimated number of samples after this many were read, None if all were read."""
    pipeline: tf.data.Dataset | None = None
    """The pipeline of single samples that training runs, if the user has one."""
    axes: Mapping[str, Axis] = field(default_factory=dict)
    """By the name of the input, FIXED if absent."""


Source = HeldArrays | Stream


def each_side(data: Any, function: Callable[[str, Any], Any]) -> tuple[Any, Any]:
    """Return the inputs and the targets of a dataset in the spec, each entry replaced by `function(side, entry)`."""

    def replace(side: str, entries: Any) -> Any:
        if isinstance(entries, dict):
            return {name: function(side, entry) for name, entry in entries.items()}
        return function(side, entries)

    return replace("inputs", data.inputs), replace("targets", data.targets)


def files_of(paths: Iterable[str], folder: str, key: str, *, folders: bool = False) -> list[Path]:
    """Return the files that the spec's paths and patterns match. They existed when the spec was read."""
    files = matching_paths(paths, folder, folders=folders)
    if not files:
        names = ", ".join(str(Path(folder, path)) for path in paths)
        raise DataUnreadable(
            f"{key}: no such {'folder' if folders else 'file'}: {names}",
            hint="it existed when the spec was read; put it back, or change the path",
        )
    return files


def missing(where: object, kind: str, name: str, key: str, available: Collection[str]) -> DataUnreadable:
    """Return the error for a column, field, feature or array that the spec names and the file does not have."""
    similar = difflib.get_close_matches(name, available, n=1)
    shown = ", ".join(sorted(available)[:_MAX_NAMES_SHOWN]) + (", ..." if len(available) > _MAX_NAMES_SHOWN else "")
    suggestion = f"did you mean {similar[0]!r}? " if similar else ""
    return DataUnreadable(f"{where} has no {kind} {name!r} ({key})", hint=f"{suggestion}it has: {shown or 'none'}")


def unreadable(where: object, reason: object, key: str, hint: str) -> DataUnreadable:
    return DataUnreadable(f"{where} can't be read: {reason} ({key})", hint=hint)


def tensorflow_reason(error: Exception) -> str:
    """Return TensorFlow's message without the names of graph nodes and pipeline stages."""
    return _PIPELINE.sub("", " ".join(_GRAPH_NODES.sub("", reason(error)).split()))


def decode_text(value: bytes, feature: str, where: str, key: str) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise unreadable(
            where, f"feature {feature!r} is not UTF-8 text", key, "string features must be text; choose another feature"
        ) from None
