"""The worst batch that the spec's dataset can give at a candidate, and the pipeline that feeds it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import Candidate, NpzData, SyntheticData, Tensors, TensorSpec, WorkOrder
from oomtune.errors import DataUnreadable

_SEED = 20_240_229
# The pipeline repeats this many samples to fill any batch: what it keeps for itself stays small.
_MOST_ROWS = 64


def pipeline(order: WorkOrder, candidate: Candidate) -> tf.data.Dataset:
    """Batches without end, of the candidate's size, made as training makes them.

    The batch dimension is unknown to the graph, as it is in training unless the last batch is dropped: graphs with a
    known one use up to a fifth less memory, and the answer has to hold without it. When the CPU stands in for a GPU,
    whose input pipeline would live in host memory, one prepared batch is fed again and again instead.
    """
    samples = _samples(order, candidate)
    rows = tf.data.Dataset.from_tensor_slices(samples).repeat()
    batches = rows.batch(candidate.batch_size)
    if order.device.stands_in_for is not None:
        return batches.take(1).cache().repeat()
    return batches.prefetch(1)


def _samples(order: WorkOrder, candidate: Candidate) -> tuple[Any, Any]:
    count = min(candidate.batch_size, _MOST_ROWS)
    if order.dataset.synthetic is not None:
        return _synthetic(order.dataset.synthetic, candidate, count)
    assert order.dataset.npz is not None, "the spec border lets no dataset through without one of its kinds"
    return _from_npz(order.dataset.npz, order.folder, candidate, count)


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


def _from_npz(data: NpzData, folder: str, candidate: Candidate, count: int) -> tuple[Any, Any]:
    path = Path(folder) / data.path
    inputs, targets = _arrays(path, data.inputs), _arrays(path, data.targets)
    (first, samples), *others = {**_by_name(data.inputs, inputs), **_by_name(data.targets, targets)}.items()
    for name, array in others:
        if len(array) != len(samples):
            raise DataUnreadable(
                f"{path}: {first!r} has {len(samples)} samples and {name!r} has {len(array)}",
                hint="all arrays need one entry a sample",
            )
    if len(samples) == 0:
        raise DataUnreadable(f"{path}: {first!r} holds no samples")
    chosen = _longest_first(samples)[:count]

    def cut(array: Any) -> Any:
        return _fit_length(array[chosen], candidate.sequence_length)

    def cut_if_by_token(array: Any) -> Any:
        return cut(array) if _is_per_token(samples, array) else array[chosen]

    return _mapped(cut, inputs), _mapped(cut_if_by_token, targets)


def _mapped(function: Callable[[Any], Any], arrays: Any) -> Any:
    """Of one array, or of each of several."""
    return {name: function(array) for name, array in arrays.items()} if isinstance(arrays, dict) else function(arrays)


def _arrays(path: Path, names: str | dict[str, str]) -> Any:
    return {key: _array(path, name) for key, name in names.items()} if isinstance(names, dict) else _array(path, names)


def _by_name(names: str | dict[str, str], arrays: Any) -> dict[str, Any]:
    return {names[key]: array for key, array in arrays.items()} if isinstance(names, dict) else {names: arrays}


@cache
def _array(path: Path, name: str) -> Any:
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataUnreadable(f"{path} is not an .npz archive", hint="write it with numpy.savez")
        with archive:
            if name not in archive.files:
                raise DataUnreadable(
                    f"{path} has no array {name!r}", hint=f"it has: {', '.join(sorted(archive.files)) or 'none'}"
                )
            array = archive[name]
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise DataUnreadable(
            f"{path}: {name!r} can't be read: {error}",
            hint="arrays of objects are never unpickled; save plain numbers with numpy.savez",
        ) from None
    if array.ndim == 0:
        raise DataUnreadable(f"{path}: {name!r} is a single number, not one entry a sample")
    return array


def _longest_first(inputs: Any) -> Any:
    """Indices with the samples that have the most tokens first: trailing zeros are padding."""
    if inputs.ndim != 2 or inputs.dtype.kind not in "iu":
        return np.arange(len(inputs))
    lengths = inputs.shape[1] - np.argmax(inputs[:, ::-1] != 0, axis=1)
    return np.argsort(-lengths, kind="stable")


def _is_per_token(inputs: Any, targets: Any) -> bool:
    return bool(inputs.ndim > 1 and targets.ndim > 1 and inputs.shape[1] == targets.shape[1])


def _fit_length(array: Any, length: int | None) -> Any:
    """Cut or pad the second axis to the sequence length under trial."""
    if length is None or array.ndim < 2:
        return array
    cut = array[:, :length]
    padding = [(0, 0), (0, length - cut.shape[1])] + [(0, 0)] * (cut.ndim - 2)
    return np.pad(cut, padding)
