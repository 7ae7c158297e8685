"""Make random samples for synthetic data."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import Candidate, SyntheticData, TensorSpec
from oomtune.worker.data.source import each_side

SEED = 20_240_229


def synthetic_samples(data: SyntheticData, candidate: Candidate, count: int) -> tuple[Any, Any]:
    """Return inputs and targets of this many random samples, the same in each call."""
    generator = np.random.default_rng(SEED)
    return each_side(data, lambda _, tensor: random_tensor(tensor, candidate.sequence_length, generator, count))


def random_tensor(
    tensor: TensorSpec, length: int | None, generator: np.random.Generator, count: int | None = None
) -> Any:
    """Return a random sample of this length, or a batch of `count` samples."""
    sample = [int((length if size == "sequence_length" else size) or 0) for size in tensor.shape]
    shape = sample if count is None else [count, *sample]
    dtype = tf.as_dtype(tensor.dtype)
    values: Any
    if dtype.is_bool:
        values = generator.integers(0, 2, size=shape)
    elif dtype.is_integer:
        values = generator.integers(0, int(tensor.max or 2), size=shape)
    else:
        values = generator.random(size=shape) * (tensor.max or 1.0)
    return np.asarray(values).astype(dtype.as_numpy_dtype)
