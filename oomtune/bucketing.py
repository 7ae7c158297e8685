"""Batches of samples that are about as long, by `tf.data`'s own bucketing: in training scripts and trials alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf


def in_buckets(
    dataset: tf.data.Dataset,
    boundaries: Sequence[int],
    batch_sizes: Sequence[int],
    length: Callable[..., Any] | None = None,
) -> tf.data.Dataset:
    """The samples, each in a batch of its bucket, padded to the end of that bucket and cut to the end of the last."""
    import tensorflow as tf

    longest = boundaries[-1]

    def length_of(*sample: Any) -> tf.Tensor:
        return length(*sample) if length is not None else tf.shape(tf.nest.flatten(sample[0])[0])[0]

    def cut(*sample: Any) -> Any:
        steps = length_of(*sample)
        return tf.nest.map_structure(lambda part: _cut(part, steps, longest), sample)

    buckets = dataset.map(cut).bucket_by_sequence_length(
        lambda *sample: tf.minimum(length_of(*sample), longest),
        # tf.data's boundaries are the first length that is too long; the bucket after the last stays empty.
        bucket_boundaries=[boundary + 1 for boundary in boundaries],
        bucket_batch_sizes=[*batch_sizes, 1],
        pad_to_bucket_boundary=True,
    )
    return buckets.prefetch(1)


def _cut(part: tf.Tensor, steps: tf.Tensor, longest: int) -> tf.Tensor:
    """A part of a sample with as many entries as the sample has steps is cut to the longest; any other stays."""
    import tensorflow as tf

    if part.shape.rank == 0:
        return part
    by_step = tf.equal(tf.shape(part)[0], steps)
    shown = tf.cond(by_step, lambda: part[:longest], lambda: part)
    shown.set_shape([None, *part.shape[1:]] if part.shape[0] is None else part.shape)
    return shown
