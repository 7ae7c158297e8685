"""How long samples are, and which are the longest."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from oomtune.worker.sources.source import Axis, Bounds, Sample, by_name

# Rows whose padding is looked at together: what this needs for itself stays small.
_ROWS_AT_ONCE = 65_536
_SIDES = ("inputs", "targets")


class Lengths:
    """The lengths of samples as they come: the size of axis 0 of the first input that is a sequence."""

    def __init__(self, axes: Mapping[str, Axis]) -> None:
        self._axes = axes
        self._input: str | None = None
        self._padded = False
        self._only_if_they_differ = False
        self._begun = False
        self._counts: Counter[int] = Counter()

    def of(self, inputs: Any) -> int:
        """The length of this sample, which is counted; 0 when samples have none."""
        arrays = by_name(inputs)
        if not self._begun:
            self._begin(arrays)
        if self._input is None:
            return 0
        array = arrays[self._input]
        length = max(1, _unpadded_length(array) if self._padded else len(array))
        self._counts[length] += 1
        return length

    @property
    def input(self) -> str | None:
        """The name of the input that lengths are measured on."""
        return None if self._only_if_they_differ and len(self._counts) < 2 else self._input

    def counted(self) -> tuple[tuple[int, int], ...]:
        """Each length with how many samples have it, ascending."""
        if self._only_if_they_differ and len(self._counts) < 2:
            return ()
        return tuple(sorted(self._counts.items()))

    def _begin(self, arrays: dict[str, Any]) -> None:
        self._begun = True
        for name, array in arrays.items():
            axis = self._axes.get(name, Axis.FIXED)
            if is_sequence(array.ndim + 1, array.dtype.kind, axis):
                self._input = name
                self._padded = axis is Axis.FIXED and array.ndim == 1
                return
        # A list of fractions may be a vector or a sequence: its sizes tell.
        unclear = [
            name for name, array in arrays.items() if array.ndim and self._axes.get(name, Axis.FIXED) is Axis.UNKNOWN
        ]
        if unclear:
            self._input, self._only_if_they_differ = unclear[0], True


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
    for name, array in by_name(inputs).items():
        if not is_sequence(array.ndim, array.dtype.kind, Axis.FIXED):
            continue
        if array.ndim > 2:
            return name, np.full(len(array), array.shape[1], dtype=np.int64)
        pieces = [_unpadded(array[at : at + _ROWS_AT_ONCE]) for at in range(0, len(array), _ROWS_AT_ONCE)]
        return name, np.concatenate(pieces)
    return None, None


class Sizes:
    """Which parts of samples differ in the size of their first axis."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self.varying: set[str] = set()

    def look(self, sample: Sample) -> None:
        for side, arrays in zip(_SIDES, sample, strict=True):
            for name, array in by_name(arrays).items():
                if array.ndim and self._first.setdefault(f"{side}.{name}", len(array)) != len(array):
                    self.varying.add(f"{side}.{name}")


def sequences(samples: list[Sample], measured: str | None, varying: Set[str] = frozenset()) -> tuple[str, ...]:
    """The parts that are as long as their sample: those that vary, the one that lengths are measured on, and those of
    its size that hold tokens, or a vector for each step. A vector of fractions of that size is none."""
    found = set(varying)
    if measured is not None:
        sizes = [len(by_name(sample[0])[measured]) for sample in samples]
        found.add(f"inputs.{measured}")
        for index, side in enumerate(_SIDES):
            for name, array in by_name(samples[0][index]).items():
                by_step = array.ndim > 1 or (array.ndim == 1 and array.dtype.kind in "iu")
                if by_step and sizes == [len(by_name(sample[index])[name]) for sample in samples]:
                    found.add(f"{side}.{name}")
    return tuple(sorted(found))


def _unpadded_length(row: Any) -> int:
    tokens = np.flatnonzero(row)
    return int(tokens[-1]) + 1 if len(tokens) else 0


def _unpadded(rows: Any) -> Any:
    """Trailing zeros are padding. A row of zeros still has one token: a batch of it is not empty."""
    tokens = rows != 0
    lengths = rows.shape[1] - np.argmax(tokens[:, ::-1], axis=1)
    return np.where(tokens.any(axis=1), lengths, 1)


class Worst:
    """The longest samples of a stream, the first of them on a tie."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._kept: list[tuple[int, int, Sample]] = []
        self._seen = 0

    def offer(self, length: int, sample: Sample) -> None:
        # The count makes entries differ, so that samples themselves are never compared.
        self._seen += 1
        entry = (length, -self._seen, sample)
        if len(self._kept) < self._bounds.worst:
            heapq.heappush(self._kept, entry)
        elif length > self._kept[0][0]:
            heapq.heapreplace(self._kept, entry)

    def longest_first(self) -> list[Sample]:
        return within(self._bounds, [sample for _, _, sample in sorted(self._kept, key=lambda entry: entry[:2])[::-1]])


def within(bounds: Bounds, samples: list[Sample]) -> list[Sample]:
    """As many of the samples as may be kept together; at least one."""
    total = 0
    kept: list[Sample] = []
    for sample in samples[: bounds.worst]:
        total += sum(array.nbytes for arrays in sample for array in by_name(arrays).values())
        if kept and total > bounds.worst_bytes:
            break
        kept.append(sample)
    return kept
