"""How long samples are, and which are the longest."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from oomtune.worker.data import nesting
from oomtune.worker.data.source import SIDES, Axis, Bounds, Sample

# Rows whose padding is looked at together: what this needs for itself stays small.
_ROWS_AT_ONCE = 65_536


class Lengths:
    """The lengths of samples as they come, and the longest of them.

    A sample is as long as the longest of its parts that are sequences: those that are known to be, and those whose size
    turns out to differ from one sample to the next.
    """

    def __init__(self, axes: Mapping[str, Axis], bounds: Bounds) -> None:
        self._axes = axes
        self._bounds = bounds
        self._measured: dict[str, bool] = {}
        """The parts that count, and whether trailing zeros of theirs are padding."""
        self._sizes: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self._worst: list[tuple[tuple[int, int], int, Sample]] = []
        self._longest: dict[str, tuple[int, Sample]] = {}
        self._seen = 0

    def look(self, sample: Sample) -> None:
        parts = _parts(sample)
        if not self._seen:
            self._measured = _known_sequences(nesting.parts(sample[0]), self._axes)
            self._sizes = {name: len(array) for name, array in parts.items() if array.ndim}
        self._look_for_other_sizes(parts, sample)
        length = max((_length(parts[name], padded) for name, padded in self._measured.items()), default=0)
        self._counts[length] += 1
        self._seen += 1
        # The count makes entries differ, so that samples themselves are never compared.
        entry = ((length, max(map(words_in, parts.values()))), -self._seen, sample)
        if len(self._worst) < self._bounds.worst:
            heapq.heappush(self._worst, entry)
        elif entry[0] > self._worst[0][0]:
            heapq.heapreplace(self._worst, entry)

    def _look_for_other_sizes(self, parts: dict[str, Any], sample: Sample) -> None:
        for name, size in self._sizes.items():
            found = len(parts[name])
            if name not in self._longest or found > self._longest[name][0]:
                self._longest[name] = (found, sample)
            if found != size and name not in self._measured:
                self._measured[name] = False
                self._raise_to(max(1, size))

    def _raise_to(self, size: int) -> None:
        """Another part counts from here on; in all samples up to now it had this size. Their order stays."""
        counts = Counter({max(length, size): 0 for length in self._counts})
        for length, many in self._counts.items():
            counts[max(length, size)] += many
        self._counts = counts
        self._worst = [((max(length, size), words), number, sample) for (length, words), number, sample in self._worst]
        heapq.heapify(self._worst)

    @property
    def measured(self) -> tuple[str, ...]:
        """The parts that lengths are measured on."""
        return tuple(self._measured)

    def counted(self) -> tuple[tuple[int, int], ...]:
        """Each length with how many samples have it, ascending; nothing when samples have none."""
        return tuple(sorted(self._counts.items())) if self._measured else ()

    def longest_first(self) -> list[Sample]:
        """The longest samples, the first of them on a tie; after them those with the longest of each other part: a
        batch may hold both."""
        ordered = sorted(self._worst, key=lambda entry: entry[:2])[::-1]
        kept = within(self._bounds, [sample for _, _, sample in ordered])
        for name in self._measured:
            size, sample = self._longest.get(name, (0, None))
            if sample is not None and all(len(_parts(one)[name]) < size for one in kept):
                kept.append(sample)
        return kept


def _parts(sample: Sample) -> dict[str, Any]:
    """The arrays of a sample by side and name, such as `inputs.words`."""
    sides = zip(SIDES, sample, strict=False)
    return {f"{side}.{name}": array for side, arrays in sides for name, array in nesting.parts(arrays).items()}


def _known_sequences(inputs: dict[str, Any], axes: Mapping[str, Axis]) -> dict[str, bool]:
    """The inputs that are sequences before a second sample was seen: all that are said to vary, or else the first that
    looks like one. A list of fractions may be a vector: whether its sizes differ will tell."""
    found: dict[str, bool] = {}
    for name, array in inputs.items():
        axis = axes.get(name, Axis.FIXED)
        if is_sequence(array.ndim + 1, array.dtype.kind, axis) and (not found or axis is Axis.VARIES):
            found[f"inputs.{name}"] = axis is Axis.FIXED and array.ndim == 1
    return found


def words_in(array: Any) -> int:
    """How many words a sample's text has, which the model is to split; none of numbers."""
    return len(array.item().split()) if array.dtype.kind in "SU" and array.size == 1 else 0


def _length(array: Any, padded: bool) -> int:
    return max(1, _unpadded_length(array) if padded else len(array))


def is_sequence(rank: int, kind: str, axis: Axis) -> bool:
    """Are samples of this input sequences? The rank counts the samples' own axis too."""
    if rank < 2 or axis is Axis.NOT_A_SEQUENCE:
        return False
    if axis is Axis.VARIES:
        return True
    return rank == 2 if kind in "iu" else rank == 3 and kind == "f"


def lengths_of_rows(inputs: Any) -> tuple[str | None, Any]:
    """The input that lengths are measured on, and the length of every sample of whole arrays at once; None and None
    when they have none."""
    for name, array in nesting.parts(inputs).items():
        if not is_sequence(array.ndim, array.dtype.kind, Axis.FIXED):
            continue
        if array.ndim > 2:
            return name, np.full(len(array), array.shape[1], dtype=np.int64)
        pieces = [_unpadded(array[at : at + _ROWS_AT_ONCE]) for at in range(0, len(array), _ROWS_AT_ONCE)]
        return name, np.concatenate(pieces)
    return None, None


def words_of_rows(inputs: Any, count: int) -> Any:
    """How many words the text of every sample has, where whole arrays hold text."""
    words = np.zeros(count, dtype=np.int64)
    for array in nesting.parts(inputs).values():
        if array.dtype.kind in "SU":
            words = np.maximum(words, [words_in(text) for text in array])
    return words


def sequences(samples: list[Sample], measured: Iterable[str]) -> tuple[str, ...]:
    """The parts that are as long as their sample: those that lengths are measured on, and those of their sizes that
    hold tokens, or a vector or a weight for each step. A vector of fractions of that size is none."""
    kept = [_parts(sample) for sample in samples]
    found = set(measured)
    for reference in measured:
        sizes = [len(parts[reference]) for parts in kept]
        for name, array in kept[0].items():
            by_step = array.ndim > 1 or (array.ndim == 1 and (array.dtype.kind in "iu" or name.startswith("weights.")))
            if by_step and sizes == [len(parts[name]) for parts in kept]:
                found.add(name)
    return tuple(sorted(found))


def _unpadded_length(row: Any) -> int:
    tokens = np.flatnonzero(row)
    return int(tokens[-1]) + 1 if len(tokens) else 0


def _unpadded(rows: Any) -> Any:
    """Trailing zeros are padding. A row of zeros still has one token: a batch of it is not empty."""
    tokens = rows != 0
    lengths = rows.shape[1] - np.argmax(tokens[:, ::-1], axis=1)
    return np.where(tokens.any(axis=1), lengths, 1)


def within(bounds: Bounds, samples: list[Sample]) -> list[Sample]:
    """As many of the samples as may be kept together; at least one."""
    total = 0
    kept: list[Sample] = []
    for sample in samples[: bounds.worst]:
        total += sum(array.nbytes for array in _parts(sample).values())
        if kept and total > bounds.worst_bytes:
            break
        kept.append(sample)
    return kept
