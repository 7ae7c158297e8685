"""Batches of samples that are about as long, by `tf.data`'s own bucketing: in training scripts and trials alike.

It imports TensorFlow, so it is itself imported only by a trial, or inside the function that a script calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def in_buckets(
    dataset: tf.data.Dataset,
    boundaries: Sequence[int],
    batch_sizes: Sequence[int],
    length: Callable[..., Any] | None = None,
) -> tf.data.Dataset:
    """The samples, each in a batch of its bucket, padded to the end of that bucket and cut to the end of the last."""
    longest = boundaries[-1]

    def cut(*sample: Any) -> Any:
        sample = tf.nest.map_structure(_dense, sample)
        steps = tf.minimum(length(*sample) if length is not None else _length(sample), longest)
        whole = _sequence(sample[0])
        return tf.nest.map_structure(lambda part: _cut(part, whole, steps, longest), sample)

    buckets = dataset.map(cut).bucket_by_sequence_length(
        lambda *sample: _longest(_varying(sample) or [_sequence(sample[0])]),
        # tf.data's boundaries are the first length that is too long; the bucket after the last stays empty.
        bucket_boundaries=[boundary + 1 for boundary in boundaries],
        bucket_batch_sizes=[*batch_sizes, 1],
        pad_to_bucket_boundary=True,
    )
    return buckets.prefetch(1)


def _dense(part: Any) -> tf.Tensor:
    return part.to_tensor() if hasattr(part, "to_tensor") else part


def _varying(sample: Any) -> list[tf.Tensor]:
    """The parts of a sample whose size differs from one to the next."""
    return [part for part in tf.nest.flatten(sample) if part.shape.rank and part.shape[0] is None]


def _longest(parts: list[tf.Tensor]) -> tf.Tensor:
    return tf.reduce_max([tf.shape(part)[0] for part in parts])


def _sequence(inputs: Any) -> tf.Tensor:
    """The input that a sample's length is measured on: the first whose size varies, or else the first of tokens, or
    else the first."""
    parts = tf.nest.flatten(inputs)
    tokens = [part for part in parts if part.shape.rank == 1 and part.dtype.is_integer]
    return (_varying(inputs) or tokens or parts)[0]


def _length(sample: Any) -> tf.Tensor:
    """How many steps a sample has: those of its longest part. Where all have the same, trailing zeros of tokens are
    padding."""
    varying, part = _varying(sample), _sequence(sample[0])
    if varying:
        return _longest(varying)
    if part.shape.rank == 1 and part.dtype.is_integer:
        return tf.maximum(1, tf.reduce_max(tf.where(part != 0, tf.range(1, part.shape[0] + 1), 0)))
    return tf.shape(part)[0]


def _cut(part: tf.Tensor, whole: tf.Tensor, steps: tf.Tensor, longest: int) -> tf.Tensor:
    """A part of a sample that is as long as its sequence is cut to the sample's steps, another one that varies to what
    is longest; any other stays."""
    if part.shape.rank == 0 or part.shape[0] != whole.shape[0]:
        return part
    by_step = tf.equal(tf.shape(part)[0], tf.shape(whole)[0])
    shown = part[: tf.where(by_step, steps, longest)]
    shown.set_shape([None, *part.shape[1:]])
    return shown
