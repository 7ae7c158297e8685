"""Numbers for tensors that have no data of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import TensorSpec


def random_values(tensor: TensorSpec, shape: Sequence[int], generator: np.random.Generator) -> Any:
    """An array of this shape with numbers as the tensor has them."""
    dtype = tf.as_dtype(tensor.dtype)
    values: Any
    if dtype.is_bool:
        values = generator.integers(0, 2, size=shape)
    elif dtype.is_integer:
        values = generator.integers(0, int(tensor.max or 2), size=shape)
    else:
        values = generator.random(size=shape) * (tensor.max or 1.0)
    return np.asarray(values).astype(dtype.as_numpy_dtype)
