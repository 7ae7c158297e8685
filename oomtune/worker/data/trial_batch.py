"""Feed a trial the worst batches of the dataset, through a pipeline like that of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    TfdsData,
    WorkOrder,
)
from oomtune.keras import bucketing
from oomtune.worker.data import open_source, worst_samples
from oomtune.worker.data.source import HeldArrays
from oomtune.worker.data.synthetic import synthetic_samples

# The pipeline repeats this many samples to fill any batch, so that it needs little memory itself.
_MAX_SAMPLES = 64
# Each bucket is filled about this many times, and at least once in this many steps.
_FILLS = 3
_MAX_STEPS_TO_FILL = 20


def pipeline(order: WorkOrder, candidate: Candidate) -> tf.data.Dataset:
    """Return endless batches of the candidate's size, made as training makes them.

    The graph does not know the batch dimension, as in training unless the last batch is dropped. Graphs that know it
    use up to a fifth less memory, and the answer has to hold without it. If the CPU stands in for a GPU, whose input
    pipeline would live in host memory, one prepared batch is repeated instead.
    """
    samples = tf.data.Dataset.from_tensor_slices(_samples(order, candidate)).repeat()
    batches = _beside_resident_data(samples.batch(candidate.batch_size), order)
    if order.device.stands_in_for is not None:
        return batches.take(1).cache().repeat()
    return batches.prefetch(1)


def in_buckets(order: WorkOrder, trial: BucketTurns) -> tuple[tf.data.Dataset, int]:
    """Return endless batches of the trial's buckets, and how many steps fill each bucket several times."""
    assert order.scan is not None, "only data that was read has buckets"
    worst = _worst_samples(order.scan.rows_path)
    boundaries, sizes = zip(*trial.buckets, strict=True)
    lengths = _draw_lengths(order.scan, boundaries, sizes)
    rows = tf.data.Dataset.from_tensor_slices(worst.at(_MAX_SAMPLES, boundaries[-1])).repeat()
    samples = tf.data.Dataset.zip(rows, tf.data.Dataset.from_tensor_slices(lengths).repeat()).map(worst.cut)
    batches = bucketing.bucket_by_length(_beside_resident_data(samples, order), boundaries, sizes)
    buckets = np.searchsorted(boundaries, lengths)
    return batches, sum(math.ceil(np.count_nonzero(buckets == index) / size) for index, size in enumerate(sizes))


def _draw_lengths(scan: Scan, boundaries: Sequence[int], sizes: Sequence[int]) -> Any:
    """Draw lengths in random order, as training meets them, until each bucket is filled a few times.

    The order matters: the samples of a bucket that fills slowly lie in memory between the batches of the others. They
    fragment it, so that a long batch may find no room although enough is free. Only buckets that would hardly ever fill
    get more samples than the data has. Each trial draws its own order, because a single one may be lucky.
    """
    lengths = np.array([min(length, boundaries[-1]) for length, _ in scan.lengths])
    weights = np.array([many for _, many in scan.lengths], dtype=float)
    bucket = np.searchsorted(boundaries, lengths)
    rates = np.array([weights[bucket == index].sum() / size for index, size in enumerate(sizes)])
    min_rate = rates.sum() / _MAX_STEPS_TO_FILL
    for index in np.flatnonzero((rates > 0) & (rates < min_rate)):
        weights[bucket == index] *= min_rate / rates[index]
    slowest = min(rate for rate in np.maximum(rates, min_rate)[rates > 0])
    count = math.ceil(_FILLS / slowest * weights.sum())
    generator = np.random.default_rng(sum(sizes))
    return generator.choice(lengths, size=count, p=weights / weights.sum()).astype(np.int32)


def _samples(order: WorkOrder, candidate: Candidate) -> tuple[Any, ...]:
    count = min(candidate.batch_size, _MAX_SAMPLES)
    if isinstance(order.dataset, SyntheticData):
        return synthetic_samples(order.dataset, candidate, count)
    assert order.scan is not None, "data is read before the first trial"
    return _worst_samples(order.scan.rows_path).at(count, candidate.sequence_length)


@cache
def _worst_samples(path: str) -> worst_samples.WorstSamples:
    return worst_samples.load(Path(path))


# Opened once per process: arrays are in memory once, as in training.
_resident_data: list[HeldArrays | tf.data.Dataset | None] = []


def _beside_resident_data(batches: tf.data.Dataset, order: WorkOrder) -> tf.data.Dataset:
    """Return the batches, and hold the data that training keeps in memory, such as whole arrays, beside them."""
    if isinstance(order.dataset, SyntheticData):
        return batches
    if not _resident_data:
        _resident_data.append(_open_resident_data(order))
    (data,) = _resident_data
    if isinstance(data, tf.data.Dataset):
        return tf.data.Dataset.zip(batches, data.repeat()).map(lambda batch, _: batch)
    return batches


def _open_resident_data(order: WorkOrder) -> HeldArrays | tf.data.Dataset | None:
    """Return the data that training keeps in memory: NumPy arrays on the host, or a pipeline that runs.

    On the CPU, arrays count against the same limit. Beside a GPU, they take the host's memory. A CPU that stands in for
    a GPU has no separate memory for a pipeline, so none runs there.
    """
    dataset, stands_in = order.dataset, order.device.stands_in_for is not None
    may_run_pipeline = isinstance(dataset, PythonData | TfdsData) and not stands_in
    if dataset is None or not (may_run_pipeline or isinstance(dataset, NpzData | NpyData)):
        return None  # other data is streamed and does not stay in memory
    source = open_source(dataset, order.folder)
    if not isinstance(source, HeldArrays):
        return source.pipeline
    if order.device.kind == "gpu" or stands_in:
        return source
    return tf.data.Dataset.from_tensor_slices(source.arrays)
