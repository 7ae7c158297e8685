"""The worst batch that the spec's dataset can give at a candidate, and the pipeline that feeds it."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import Candidate, DatasetSpec, SyntheticData, Tensors, TensorSpec, WorkOrder
from oomtune.worker import sources, worst

_SEED = 20_240_229
# The pipeline repeats this many samples to fill any batch: what it keeps for itself stays small.
_MOST_ROWS = 64
# Made once in a process: as in training, arrays lie in memory once.
_own: list[tf.data.Dataset | None] = []


def pipeline(order: WorkOrder, candidate: Candidate) -> tf.data.Dataset:
    """Batches without end, of the candidate's size, made as training makes them.

    The batch dimension is unknown to the graph, as it is in training unless the last batch is dropped: graphs with a
    known one use up to a fifth less memory, and the answer has to hold without it. When the CPU stands in for a GPU,
    whose input pipeline would live in host memory, one prepared batch is fed again and again instead.
    """
    rows = tf.data.Dataset.from_tensor_slices(_samples(order, candidate)).repeat()
    batches = rows.batch(candidate.batch_size)
    if order.device.stands_in_for is not None:
        return batches.take(1).cache().repeat()
    if order.device.kind == "cpu":
        batches = _with_what_training_keeps(batches, order)
    return batches.prefetch(1)


def by_turns(order: WorkOrder, batch_size: int | None = None) -> tf.data.Dataset:
    """Batches without end of the trial's buckets, in an order that sets each beside each other; of this size if one is
    given."""
    lane, buckets = order.trial.candidate.lane, order.trial.buckets
    feeds = [
        pipeline(order, dataclasses.replace(lane, sequence_length=length).at(batch_size or size))
        for length, size in buckets
    ]
    turns = [turn for first in range(len(feeds)) for other in range(first, len(feeds)) for turn in (other, first)]
    return tf.data.Dataset.choose_from_datasets(
        feeds, tf.data.Dataset.from_tensor_slices(tf.constant(turns, tf.int64)).repeat(), stop_on_empty_dataset=False
    )


def _samples(order: WorkOrder, candidate: Candidate) -> tuple[Any, Any]:
    count = min(candidate.batch_size, _MOST_ROWS)
    if order.dataset.synthetic is not None:
        return _synthetic(order.dataset.synthetic, candidate, count)
    assert order.scan is not None, "data that is not made up is read before the first trial"
    return _worst_samples(order.scan.rows_path).at(count, candidate.sequence_length)


@cache
def _worst_samples(path: str) -> worst.WorstSamples:
    return worst.load(Path(path))


def _with_what_training_keeps(batches: tf.data.Dataset, order: WorkOrder) -> tf.data.Dataset:
    """The same batches, while arrays lie in memory and a pipeline of the user's own runs as they would in training:
    on the CPU these come out of the same limit."""
    if order.dataset.synthetic is not None:
        return batches
    if not _own:
        _own.append(_own_pipeline(order.dataset, order.folder))
    own = _own[0]
    if own is None:
        return batches
    return tf.data.Dataset.zip(batches, own.repeat()).map(lambda batch, _: batch)


def _own_pipeline(dataset: DatasetSpec, folder: str) -> tf.data.Dataset | None:
    if dataset.npz is None and dataset.npy is None and dataset.python is None and dataset.tfds is None:
        return None  # files are streamed: nothing of them is kept
    source = sources.open_source(dataset, folder)
    if source.held is not None:
        return tf.data.Dataset.from_tensor_slices(source.held)
    return source.dataset


def _synthetic(data: SyntheticData, candidate: Candidate, count: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(_SEED)
    return _random(data.inputs, candidate, count, generator), _random(data.targets, candidate, count, generator)


def _random(tensors: Tensors, candidate: Candidate, count: int, generator: np.random.Generator) -> Any:
    if isinstance(tensors, dict):
        return {name: _random_one(tensor, candidate, count, generator) for name, tensor in tensors.items()}
    return _random_one(tensors, candidate, count, generator)


def _random_one(tensor: TensorSpec, candidate: Candidate, count: int, generator: np.random.Generator) -> Any:
    sample = tuple(candidate.sequence_length if size == "sequence_length" else size for size in tensor.shape)
    shape = (count, *(int(size or 0) for size in sample))
    dtype = np.dtype("float32") if tensor.dtype == "bfloat16" else np.dtype(tensor.dtype)
    if dtype.kind in "iu":
        values = generator.integers(0, int(tensor.max or 2), size=shape).astype(dtype)
    elif dtype.kind == "b":
        values = generator.integers(0, 2, size=shape).astype(dtype)
    else:
        values = (generator.random(size=shape) * (tensor.max or 1.0)).astype(dtype)
    return tf.cast(values, tensor.dtype) if tensor.dtype == "bfloat16" else values
