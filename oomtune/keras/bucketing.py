"""Batch samples of similar length together, through `tf.data`'s own bucketing.

This module imports TensorFlow, so only trials import it at module level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def bucket_by_length(
    dataset: tf.data.Dataset,
    boundaries: Sequence[int],
    batch_sizes: Sequence[int],
    length: Callable[..., Any] | None = None,
) -> tf.data.Dataset:
    """Batch samples by bucket, padded to the end of their bucket and cut to the end of the last one."""
    longest = boundaries[-1]

    def cut(*sample: Any) -> Any:
        sample = tf.nest.map_structure(_dense, sample)
        steps = tf.minimum(length(*sample) if length is not None else _length_of(sample), longest)
        sequence = _sequence_of(sample[0])
        return tf.nest.map_structure(lambda part: _cut(part, sequence, steps, longest), sample)

    buckets = dataset.map(cut).bucket_by_sequence_length(
        lambda *sample: _longest(_varying(sample) or [_sequence_of(sample[0])]),
        # tf.data expects the first length that no longer belongs to a bucket. The bucket after the last stays empty.
        bucket_boundaries=[boundary + 1 for boundary in boundaries],
        bucket_batch_sizes=[*batch_sizes, 1],
        pad_to_bucket_boundary=True,
    )
    return buckets.prefetch(1)


def _dense(part: Any) -> tf.Tensor:
    return part.to_tensor() if hasattr(part, "to_tensor") else part


def _varying(sample: Any) -> list[tf.Tensor]:
    """Return the parts of a sample whose first dimension varies between samples."""
    return [part for part in tf.nest.flatten(sample) if part.shape.rank and part.shape[0] is None]


def _longest(parts: list[tf.Tensor]) -> tf.Tensor:
    return tf.reduce_max([tf.shape(part)[0] for part in parts])


def _sequence_of(inputs: Any) -> tf.Tensor:
    """Pick the input that measures length: the first that varies, else the first of tokens, else the first."""
    parts = tf.nest.flatten(inputs)
    tokens = [part for part in parts if part.shape.rank == 1 and part.dtype.is_integer]
    return (_varying(inputs) or tokens or parts)[0]


def _length_of(sample: Any) -> tf.Tensor:
    """Count the steps of a sample. If no part varies, trailing zeros of tokens are padding and do not count."""
    varying, part = _varying(sample), _sequence_of(sample[0])
    if varying:
        return _longest(varying)
    if part.shape.rank == 1 and part.dtype.is_integer:
        return tf.maximum(1, tf.reduce_max(tf.where(part != 0, tf.range(1, part.shape[0] + 1), 0)))
    return tf.shape(part)[0]


def _cut(part: tf.Tensor, sequence: tf.Tensor, steps: tf.Tensor, longest: int) -> tf.Tensor:
    """Cut a part that runs along the sequence to the sample's steps, and other varying parts to the longest bucket."""
    if part.shape.rank == 0 or part.shape[0] != sequence.shape[0]:
        return part
    runs_along = tf.equal(tf.shape(part)[0], tf.shape(sequence)[0])
    shortened = part[: tf.where(runs_along, steps, longest)]
    shortened.set_shape([None, *part.shape[1:]])
    return shortened
