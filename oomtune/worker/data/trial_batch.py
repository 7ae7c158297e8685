"""The worst batch that the spec's dataset can give at a candidate, and the pipeline that feeds it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import (
    BucketTurns,
    Candidate,
    NpyData,
    NpzData,
    PythonData,
    Scan,
    SyntheticData,
    Tensors,
    TensorSpec,
    TfdsData,
    WorkOrder,
)
from oomtune.keras import bucketing
from oomtune.worker.data import sources
from oomtune.worker.data import worst_rows as worst

_SEED = 20_240_229
# The pipeline repeats this many samples to fill any batch: what it keeps for itself stays small.
_MOST_ROWS = 64
# Each bucket is filled about so many times, and at least once in so many steps.
_FILLS = 3
_MOST_STEPS_TO_FILL = 20
# Opened once in a process: as in training, arrays lie in memory once.
_own: list[_Kept] = []


def pipeline(order: WorkOrder, candidate: Candidate) -> tf.data.Dataset:
    """Batches without end, of the candidate's size, made as training makes them.

    The batch dimension is unknown to the graph, as it is in training unless the last batch is dropped: graphs with a
    known one use up to a fifth less memory, and the answer has to hold without it. When the CPU stands in for a GPU,
    whose input pipeline would live in host memory, one prepared batch is fed again and again instead.
    """
    rows = tf.data.Dataset.from_tensor_slices(_samples(order, candidate)).repeat()
    batches = rows.batch(candidate.batch_size)
    batches = _with_what_training_keeps(batches, order)
    if order.device.stands_in_for is not None:
        return batches.take(1).cache().repeat()
    return batches.prefetch(1)


def in_buckets(order: WorkOrder, trial: BucketTurns) -> tuple[tf.data.Dataset, int]:
    """Batches without end of the trial's buckets, made as training makes them, and how many steps fill each of them
    several times."""
    assert order.scan is not None, "buckets are for data that was read"
    kept = _worst_samples(order.scan.rows_path)
    boundaries, sizes = zip(*trial.buckets, strict=True)
    lengths = _lengths(order.scan, boundaries, sizes)
    rows = tf.data.Dataset.from_tensor_slices(kept.at(_MOST_ROWS, boundaries[-1])).repeat()
    samples = tf.data.Dataset.zip(rows, tf.data.Dataset.from_tensor_slices(lengths).repeat()).map(kept.cut)
    samples = _with_what_training_keeps(samples, order)
    batches = bucketing.bucket_by_length(samples, boundaries, sizes)
    buckets = np.searchsorted(boundaries, lengths)
    return batches, sum(math.ceil(np.count_nonzero(buckets == index) / size) for index, size in enumerate(sizes))


def _lengths(scan: Scan, boundaries: Sequence[int], sizes: Sequence[int]) -> Any:
    """Lengths in the order in which training would meet them, for as long as it takes to fill each bucket some times.

    The order matters: samples of a bucket that fills slowly lie in memory between the batches of the others and cut it
    up, so that one long batch may find no room where there is enough. Only a bucket that would hardly ever fill gets
    more samples than it has in the data. And each trial gets an order of its own: one of them alone may be lucky.
    """
    shown = np.array([min(length, boundaries[-1]) for length, _ in scan.lengths])
    shares = np.array([many for _, many in scan.lengths], dtype=float)
    bucket = np.searchsorted(boundaries, shown)
    rates = np.array([shares[bucket == index].sum() / size for index, size in enumerate(sizes)])
    least = rates.sum() / _MOST_STEPS_TO_FILL
    for index in np.flatnonzero((rates > 0) & (rates < least)):
        shares[bucket == index] *= least / rates[index]
    slowest = min(rate for rate in np.maximum(rates, least)[rates > 0])
    count = math.ceil(_FILLS / slowest * shares.sum())
    return np.random.default_rng(sum(sizes)).choice(shown, size=count, p=shares / shares.sum()).astype(np.int32)


def _samples(order: WorkOrder, candidate: Candidate) -> tuple[Any, ...]:
    count = min(candidate.batch_size, _MOST_ROWS)
    if isinstance(order.dataset, SyntheticData):
        return _synthetic(order.dataset, candidate, count)
    assert order.scan is not None, "data that is not made up is read before the first trial"
    return _worst_samples(order.scan.rows_path).at(count, candidate.sequence_length)


@cache
def _worst_samples(path: str) -> worst.WorstSamples:
    return worst.load(Path(path))


def _with_what_training_keeps(batches: tf.data.Dataset, order: WorkOrder) -> tf.data.Dataset:
    """The same batches, while arrays lie in memory and a pipeline of the user's own runs as they would in training.

    On the CPU these come out of the same limit. Beside a card they take the host's memory: arrays as NumPy has them. A
    CPU that stands in for a card has no other memory for what TensorFlow makes, so none of that is made there.
    """
    if isinstance(order.dataset, SyntheticData):
        return batches
    if not _own:
        _own.append(_kept(order))
    own = _own[0].pipeline
    return batches if own is None else tf.data.Dataset.zip(batches, own.repeat()).map(lambda batch, _: batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What training keeps of the data: arrays in the host's memory, or a pipeline that runs."""

    arrays: Any = None
    pipeline: tf.data.Dataset | None = None


def _kept(order: WorkOrder) -> _Kept:
    dataset, stands_in = order.dataset, order.device.stands_in_for is not None
    own = isinstance(dataset, PythonData | TfdsData) and not stands_in
    if dataset is None or not (own or isinstance(dataset, NpzData | NpyData)):
        return _Kept()  # other files are streamed: nothing of them is kept
    source = sources.open_source(dataset, order.folder)
    if source.held is None:
        return _Kept(pipeline=source.dataset)
    if order.device.kind == "gpu" or stands_in:
        return _Kept(arrays=source.held)
    return _Kept(pipeline=tf.data.Dataset.from_tensor_slices(source.held))


def _synthetic(data: SyntheticData, candidate: Candidate, count: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(_SEED)
    return _random(data.inputs, candidate, count, generator), _random(data.targets, candidate, count, generator)


def _random(tensors: Tensors, candidate: Candidate, count: int, generator: np.random.Generator) -> Any:
    return sources.each(lambda tensor: _random_one(tensor, candidate, count, generator), tensors)


def _random_one(tensor: TensorSpec, candidate: Candidate, count: int, generator: np.random.Generator) -> Any:
    sample = tuple(candidate.sequence_length if size == "sequence_length" else size for size in tensor.shape)
    shape = (count, *(int(size or 0) for size in sample))
    return sources.random_values(tensor, shape, generator)
