"""Read the data once: count samples, measure lengths, find value ranges and keep the longest samples."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import DatasetSpec, Scan
from oomtune.errors import DataUnreadable
from oomtune.worker.data import open_source
from oomtune.worker.data.arrays import row_of
from oomtune.worker.data.source import SIDES, Axis, Bounds, HeldArrays, Sample, Stream
from oomtune.worker.data.tokens import words_in
from oomtune.worker.nesting import Nest, map_parts, parts

OnProgress = Callable[[int, float], None]

_SAMPLES_BETWEEN_REPORTS = 1_000
# Look for padding in this many rows at a time, to use little memory beside the array.
_ROWS_AT_ONCE = 65_536


def scan(
    dataset: DatasetSpec, folder: str, on_progress: OnProgress, bounds: Bounds | None = None
) -> tuple[Scan, list[Sample]]:
    """Return the result of reading the data, and its longest samples: at most 64, the longest first."""
    bounds = bounds or Bounds()
    # Data is prepared on the CPU, because the device is for the model. NumPy need not warn about overflow: a number
    # too large for its type becomes infinite and is refused.
    with tf.device("/CPU:0"), np.errstate(over="ignore"):
        source = open_source(dataset, folder, bounds)
        if isinstance(source, HeldArrays):
            return _scan_arrays(source.arrays, on_progress, bounds)
        return _scan_stream(source, on_progress, bounds)


def _scan_arrays(arrays: Sample, on_progress: OnProgress, bounds: Bounds) -> tuple[Scan, list[Sample]]:
    inputs, targets, *_ = arrays
    count = len(next(iter(parts(inputs).values())))
    measured, lengths = _lengths_of_rows(inputs)
    longest_first = np.argsort(-(_words_of_rows(inputs, count) if measured is None else lengths), kind="stable")
    counts = () if measured is None else zip(*np.unique(lengths, return_counts=True), strict=True)
    input_values, target_values = _Values("inputs"), _Values("targets")
    input_values.add(inputs)
    target_values.add(targets)
    on_progress(count, 1.0)
    worst = _within_bounds([row_of(arrays, row) for row in longest_first[: bounds.worst]], bounds)
    result = Scan(
        samples=count,
        read=count,
        lengths=tuple((int(length), int(many)) for length, many in counts),
        ranges=input_values.ranges() | target_values.ranges(),
        fractions=target_values.fractions(),
        sequences=_sequences(worst, [] if measured is None else [f"inputs.{measured}"]),
    )
    return result, worst


def _scan_stream(stream: Stream, on_progress: OnProgress, bounds: Bounds) -> tuple[Scan, list[Sample]]:
    lengths = _Lengths(stream.axes, bounds)
    input_values, target_values = _Values("inputs"), _Values("targets")
    count = 0
    for count, (sample, where) in enumerate(stream.samples, 1):
        input_values.add(sample[0])
        target_values.add(sample[1], where)
        lengths.add(sample)
        if count % _SAMPLES_BETWEEN_REPORTS == 0:
            on_progress(count, stream.share_read(count))
    if not count:
        entry = f" ({stream.key})" if stream.key else ""
        hint = "check that the path names the right data" if stream.key else "run the pipeline by itself to see why"
        raise DataUnreadable(f"{stream.name} holds no samples{entry}", hint=hint)
    on_progress(count, 1.0)
    estimate = stream.estimate_total(count)
    worst: list[Sample] = [
        (input_values.unify(inputs), target_values.unify(targets), *weights)
        for inputs, targets, *weights in lengths.longest_first()
    ]
    result = Scan(
        samples=count if estimate is None else max(count, estimate),
        read=count,
        lengths=lengths.counts(),
        more=estimate is not None and estimate <= count,
        ranges=input_values.ranges() | target_values.ranges(),
        fractions=target_values.fractions(),
        places=target_values.places(),
        sequences=_sequences(worst, lengths.measured),
    )
    return result, worst


# --- lengths and the longest samples


class _Lengths:
    """Measures the samples one by one and keeps the longest.

    A sample is as long as its longest sequence. Sequences are the parts declared or recognised as such, and every part
    whose size differs between samples.
    """

    def __init__(self, axes: Mapping[str, Axis], bounds: Bounds) -> None:
        self._axes = axes
        self._bounds = bounds
        self._has_padding: dict[str, bool] = {}
        """The measured parts, and whether their trailing zeros are padding."""
        self._first_sizes: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self._worst: list[tuple[tuple[int, int], int, Sample]] = []
        """A heap of samples by length and words. The number makes entries differ, because samples can't be compared."""
        self._longest_of_part: dict[str, tuple[int, Sample]] = {}
        self._read = 0

    def add(self, sample: Sample) -> None:
        sample_parts = _parts_of(sample)
        if not self._read:
            self._has_padding = _known_sequences(parts(sample[0]), self._axes)
            self._first_sizes = {name: len(array) for name, array in sample_parts.items() if array.ndim}
        self._compare_sizes(sample_parts, sample)
        length = max((_length(sample_parts[name], padded) for name, padded in self._has_padding.items()), default=0)
        self._counts[length] += 1
        self._read += 1
        entry = ((length, max(map(words_in, sample_parts.values()))), -self._read, sample)
        if len(self._worst) < self._bounds.worst:
            heapq.heappush(self._worst, entry)
        elif entry[0] > self._worst[0][0]:
            heapq.heapreplace(self._worst, entry)

    def _compare_sizes(self, sample_parts: dict[str, Any], sample: Sample) -> None:
        """Keep the longest sample of each part, and measure parts whose size differs from the first sample's."""
        for name, first_size in self._first_sizes.items():
            size = len(sample_parts[name])
            if name not in self._longest_of_part or size > self._longest_of_part[name][0]:
                self._longest_of_part[name] = (size, sample)
            if size != first_size and name not in self._has_padding:
                self._has_padding[name] = False
                self._raise_lengths(max(1, first_size))

    def _raise_lengths(self, size: int) -> None:
        """Measure one more part. It had this size in all earlier samples, so their order does not change."""
        counts: Counter[int] = Counter()
        for length, many in self._counts.items():
            counts[max(length, size)] += many
        self._counts = counts
        self._worst = [((max(length, size), words), number, sample) for (length, words), number, sample in self._worst]
        heapq.heapify(self._worst)

    @property
    def measured(self) -> tuple[str, ...]:
        return tuple(self._has_padding)

    def counts(self) -> tuple[tuple[int, int], ...]:
        """Return each length, in ascending order, and the number of samples with it. Empty without sequences."""
        return tuple(sorted(self._counts.items())) if self._has_padding else ()

    def longest_first(self) -> list[Sample]:
        """Return the longest samples, earlier ones first on a tie, then a sample with the longest of each other part.

        A batch may contain both kinds.
        """
        ordered = sorted(self._worst, key=lambda entry: entry[:2])[::-1]
        worst = _within_bounds([sample for _, _, sample in ordered], self._bounds)
        for name in self._has_padding:
            size, sample = self._longest_of_part.get(name, (0, None))
            if sample is not None and all(len(_parts_of(other)[name]) < size for other in worst):
                worst.append(sample)
        return worst


def _parts_of(sample: Sample) -> dict[str, Any]:
    """Return the arrays of a sample by side and name, such as `inputs.words`."""
    sides = zip(SIDES, sample, strict=False)
    return {f"{side}.{name}": array for side, nest in sides for name, array in parts(nest).items()}


def _known_sequences(inputs: dict[str, Any], axes: Mapping[str, Axis]) -> dict[str, bool]:
    """Return the sequences among one sample's inputs, and whether their trailing zeros are padding.

    Sequences are all inputs that are declared to vary, or else the first input that looks like one. A list of fractions
    may be a plain vector: only another size in a later sample makes it a sequence.
    """
    sequences: dict[str, bool] = {}
    for name, array in inputs.items():
        axis = axes.get(name, Axis.FIXED)
        if _is_sequence(array.ndim + 1, array.dtype.kind, axis) and (not sequences or axis is Axis.VARIES):
            sequences[f"inputs.{name}"] = axis is Axis.FIXED and array.ndim == 1
    return sequences


def _is_sequence(batch_rank: int, kind: str, axis: Axis) -> bool:
    if batch_rank < 2 or axis is Axis.NOT_A_SEQUENCE:
        return False
    if axis is Axis.VARIES:
        return True
    return batch_rank == 2 if kind in "iu" else batch_rank == 3 and kind == "f"


def _length(array: Any, has_padding: bool) -> int:
    """Return the length of a sample, at least 1: even a batch of nothing but padding has one step."""
    if not has_padding:
        return max(1, len(array))
    tokens = np.flatnonzero(array)
    return int(tokens[-1]) + 1 if len(tokens) else 1


def _lengths_of_rows(inputs: Nest) -> tuple[str | None, Any]:
    """Return the name of the measured input and the length of each row, or (None, None) without sequences."""
    for name, array in parts(inputs).items():
        if not _is_sequence(array.ndim, array.dtype.kind, Axis.FIXED):
            continue
        if array.ndim > 2:
            return name, np.full(len(array), array.shape[1], dtype=np.int64)
        blocks = (array[start : start + _ROWS_AT_ONCE] != 0 for start in range(0, len(array), _ROWS_AT_ONCE))
        return name, np.concatenate([_unpadded_lengths(is_token) for is_token in blocks])
    return None, None


def _unpadded_lengths(is_token: Any) -> Any:
    lengths = is_token.shape[1] - np.argmax(is_token[:, ::-1], axis=1)
    return np.where(is_token.any(axis=1), lengths, 1)


def _words_of_rows(inputs: Nest, count: int) -> Any:
    """Return the number of words in the text of each row."""
    words = np.zeros(count, dtype=np.int64)
    for array in parts(inputs).values():
        if array.dtype.kind in "SU":
            words = np.maximum(words, [words_in(text) for text in array])
    return words


def _sequences(samples: list[Sample], measured: Iterable[str]) -> tuple[str, ...]:
    """Return the parts that are as long as their sample: the measured parts, and parts with the same sizes.

    A vector of fractions with the same sizes only counts if it is a weight for each step.
    """
    sample_parts = [_parts_of(sample) for sample in samples]
    sequences = set(measured)
    for reference in measured:
        sizes = [len(one[reference]) for one in sample_parts]
        for name, array in sample_parts[0].items():
            by_step = array.ndim > 1 or (array.ndim == 1 and (array.dtype.kind in "iu" or name.startswith("weights.")))
            if by_step and sizes == [len(one[name]) for one in sample_parts]:
                sequences.add(name)
    return tuple(sorted(sequences))


def _within_bounds(samples: list[Sample], bounds: Bounds) -> list[Sample]:
    """Return the first samples that fit within the bounds, at least one."""
    total_bytes = 0
    chosen: list[Sample] = []
    for sample in samples[: bounds.worst]:
        total_bytes += sum(array.nbytes for array in _parts_of(sample).values())
        if chosen and total_bytes > bounds.worst_bytes:
            break
        chosen.append(sample)
    return chosen


# --- ranges and fractions


class _Values:
    """The values of one side of the samples: their ranges if they are whole numbers, and fractions among targets.

    Targets stored as floats may still be labels, so they have a range if all of them are whole. Float inputs are not
    tokens, so they have none.
    """

    def __init__(self, side: str) -> None:
        self._side = side
        self._ranges: dict[str, tuple[int, int]] = {}
        self._fractions: dict[str, float] = {}
        self._kinds: dict[str, set[str]] = {}
        self._places: dict[str, tuple[str, str]] = {}

    def add(self, nest: Nest, where: str = "") -> None:
        """Add one sample, or whole arrays of samples."""
        for name, array in parts(nest).items():
            kind = array.dtype.kind
            self._kinds.setdefault(name, set()).add(kind)
            if not array.size or name in self._fractions:
                continue
            if kind == "f" and self._side == "targets" and (fractions := array[array != np.floor(array)]).size:
                self._fractions[name] = float(fractions.flat[0])
                self._places[name] = where, where
            elif kind in "iu" or (kind == "f" and self._side == "targets"):
                self._extend_range(name, int(array.min()), int(array.max()), where)

    def _extend_range(self, name: str, low: int, high: int, where: str) -> None:
        lowest, highest = self._ranges.setdefault(name, (low, high))
        lowest_at, highest_at = self._places.setdefault(name, (where, where))
        self._ranges[name] = min(low, lowest), max(high, highest)
        self._places[name] = where if low < lowest else lowest_at, where if high > highest else highest_at

    def ranges(self) -> dict[str, tuple[int, int]]:
        """Return the smallest and largest number of each part with only whole numbers."""
        return {
            f"{self._side}.{name}": limits
            for name, limits in self._ranges.items()
            if name not in self._fractions and (self._side == "targets" or "f" not in self._kinds[name])
        }

    def fractions(self) -> dict[str, float]:
        """Return the first fraction of each part that has one."""
        return {f"{self._side}.{name}": fraction for name, fraction in self._fractions.items()}

    def places(self) -> dict[str, tuple[str, str]]:
        """Return the known places of the smallest and largest number of each part, or of its first fraction."""
        return {f"{self._side}.{name}": places for name, places in self._places.items() if all(places)}

    def unify(self, nest: Nest) -> Nest:
        """Return the sample with one type per part: a part with whole numbers and fractions becomes float32."""
        return map_parts(self._unify_part, nest)

    def _unify_part(self, name: str, array: Any) -> Any:
        kinds = self._kinds[name]
        is_mixed = "f" in kinds and not kinds.isdisjoint("iu")
        return array.astype(np.float32) if is_mixed and array.dtype.kind in "iu" else array
