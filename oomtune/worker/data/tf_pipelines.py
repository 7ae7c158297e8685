"""Samples out of a tf.data pipeline, and how many of them there are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import ENDLESS
from oomtune.errors import DataUnreadable
from oomtune.worker.data.nesting import parts
from oomtune.worker.data.problems import reason_of
from oomtune.worker.data.samples import Count
from oomtune.worker.data.source import Axis, Bounds, Sample, Source

_AT_ONCE = 256
_BYTES_AT_ONCE = 16 * 1024**2
_RUN_IT = "run the pipeline by itself to see why: for sample in dataset: pass"


def pipeline_source(samples: Iterator[Sample], pipeline: tf.data.Dataset, name: str, bounds: Bounds) -> Source:
    """The samples that were made of a pipeline's elements, as many as are read of it."""
    in_all, count = int(pipeline.cardinality()), Count()
    most = bounds.endless if in_all == tf.data.INFINITE_CARDINALITY else bounds.samples

    def partial() -> int | None:
        if count.given < most or count.given == in_all:
            return None
        if in_all == tf.data.INFINITE_CARDINALITY:
            return ENDLESS
        # A pipeline that does not know its own length has at least what it gave.
        return max(in_all, count.given)

    return Source(
        samples=count.over(islice(samples, most)),
        share_read=lambda: min(1.0, count.given / (min(in_all, most) if in_all > 0 else most)),
        partial=partial,
        name=name,
    )


def elements(pipeline: tf.data.Dataset, name: str, hint: str = _RUN_IT) -> Iterator[Any]:
    """The elements of the pipeline, with arrays for tensors."""
    # Elements cost most when they are fetched one by one; those of one shape need not be.
    specs = tf.nest.flatten(pipeline.element_spec)
    together = all(_is_known(spec) for spec in specs)
    number = 0
    try:
        for fetched in pipeline.batch(_at_once(specs)) if together else pipeline:
            arrays = _as_arrays(fetched)
            for element in _rows(arrays) if together else [arrays]:
                number += 1
                yield element
    except tf.errors.OpError as error:
        raise DataUnreadable(
            f"{name} failed after {number} samples{' or a few more' if together else ''}: {reason_of(error)}",
            hint=hint,
        ) from error


def axes_of(specs: Any) -> dict[str, Axis]:
    """What the pipeline says of the first axis of each input."""
    return {name: _axis(spec) for name, spec in parts(specs).items()}


def _axis(spec: Any) -> Axis:
    if spec.dtype == tf.string:
        return Axis.NOT_A_SEQUENCE
    varies = spec.shape.rank is None or (spec.shape.rank > 0 and spec.shape[0] is None)
    return Axis.VARIES if varies else Axis.FIXED


def _is_known(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and bool(spec.shape.is_fully_defined())


def _at_once(specs: list[Any]) -> int:
    sample_bytes = sum(spec.shape.num_elements() * max(1, spec.dtype.size) for spec in specs)
    return int(min(_AT_ONCE, max(1, _BYTES_AT_ONCE // max(1, sample_bytes))))


def _rows(batch: Any) -> Iterator[Any]:
    """Copies: a row that is kept does not keep its batch."""
    flat = tf.nest.flatten(batch)
    for row in zip(*flat, strict=True):
        yield tf.nest.pack_sequence_as(batch, list(map(np.array, row)))


def _as_arrays(element: Any) -> Any:
    if isinstance(element, dict):
        return {name: _as_arrays(entry) for name, entry in element.items()}
    if isinstance(element, tuple):
        return tuple(map(_as_arrays, element))
    if isinstance(element, tf.RaggedTensor):
        # Ragged inside a sample: filled up, as it is in a batch.
        element = element.to_tensor()
    # Bytes of a fixed width, not objects: these can be saved without pickling.
    return np.asarray(element.numpy(), dtype="S" if element.dtype == tf.string else None)
