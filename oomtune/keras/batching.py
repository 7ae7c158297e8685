"""Batch a dataset in the tuned size, or in the tuned buckets by length."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oomtune.errors import UsageProblem
from oomtune.storage.tuned import TunedConfig

if TYPE_CHECKING:
    import tensorflow as tf


def batch(dataset: tf.data.Dataset, tuned: TunedConfig, *, drop_remainder: bool = False) -> tf.data.Dataset:
    """Batch single samples in the tuned size and prefetch one batch, as the trials do."""
    return dataset.batch(tuned.batch_size, drop_remainder=drop_remainder).prefetch(1)


def bucketed(
    dataset: tf.data.Dataset, tuned: TunedConfig, *, length: Callable[..., Any] | None = None
) -> tf.data.Dataset:
    """Batch single samples in the tuned buckets, using `tf.data`'s own bucketing.

    Each sample joins a batch of samples of similar length and is padded to the end of its bucket. Longer samples are
    cut to the last bucket. The length of a sample is the first dimension of its longest part that varies. If all
    tokens come padded, trailing zeros do not count. Pass `length`, a function of the sample's parts, to measure
    length another way. The model must accept samples of any length.
    """
    if not tuned.bucket_boundaries:
        raise UsageProblem(
            "this config has no buckets", hint="a probe finds buckets if the lengths in the spec's dataset vary"
        )
    from oomtune.keras.bucketing import bucket_by_length

    return bucket_by_length(dataset, tuned.bucket_boundaries, tuned.bucket_batch_sizes, length)
