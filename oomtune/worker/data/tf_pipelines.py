"""Read samples from a tf.data pipeline, the user's own or one of TensorFlow Datasets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import ENDLESS
from oomtune.errors import DataUnreadable
from oomtune.worker.data.source import Axis, Bounds, Sample, Stream, tensorflow_reason
from oomtune.worker.nesting import parts

_ELEMENTS_AT_ONCE = 256
_BYTES_AT_ONCE = 16 * 1024**2
_RUN_IT = "run the pipeline by itself to see why: for sample in dataset: pass"


def pipeline_stream(
    samples: Iterator[tuple[Sample, str]], pipeline: tf.data.Dataset, name: str, bounds: Bounds
) -> Stream:
    """Return a stream of the samples made from the pipeline's elements, up to the bound."""
    cardinality = int(pipeline.cardinality())
    is_endless = cardinality == tf.data.INFINITE_CARDINALITY
    limit = bounds.endless if is_endless else bounds.samples

    def estimate_total(count: int) -> int | None:
        if count < limit or count == cardinality:
            return None
        # A pipeline of unknown length has at least the samples that were read.
        return ENDLESS if is_endless else max(cardinality, count)

    return Stream(
        # The place of a pipeline's element does not help the user.
        samples=((sample, "") for sample, _ in islice(samples, limit)),
        name=name,
        share_read=lambda count: min(1.0, count / (min(cardinality, limit) if cardinality > 0 else limit)),
        estimate_total=estimate_total,
    )


def elements(pipeline: tf.data.Dataset, name: str, hint: str = _RUN_IT) -> Iterator[Any]:
    """Yield the pipeline's elements as arrays. Raise `DataUnreadable` with the hint if the pipeline fails."""
    # Fetching elements one by one is slow. Elements of one shape are fetched in batches.
    specs = tf.nest.flatten(pipeline.element_spec)
    is_batched = all(isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined() for spec in specs)
    count = 0
    try:
        for fetched in pipeline.batch(_batch_size(specs)) if is_batched else pipeline:
            arrays = _as_arrays(fetched)
            for element in _rows(arrays) if is_batched else [arrays]:
                count += 1
                yield element
    except tf.errors.OpError as error:
        raise DataUnreadable(
            f"{name} failed after {count} samples{' or a few more' if is_batched else ''}: {tensorflow_reason(error)}",
            hint=hint,
        ) from error


def axes_of(specs: Any) -> dict[str, Axis]:
    """Return the first axis of each input, judging by the pipeline's specs."""
    return {name: _axis(spec) for name, spec in parts(specs).items()}


def _axis(spec: Any) -> Axis:
    if spec.dtype == tf.string:
        return Axis.NOT_A_SEQUENCE
    varies = spec.shape.rank is None or (spec.shape.rank > 0 and spec.shape[0] is None)
    return Axis.VARIES if varies else Axis.FIXED


def _batch_size(specs: list[Any]) -> int:
    sample_bytes = sum(spec.shape.num_elements() * max(1, spec.dtype.size) for spec in specs)
    return int(min(_ELEMENTS_AT_ONCE, max(1, _BYTES_AT_ONCE // max(1, sample_bytes))))


def _rows(batch: Any) -> Iterator[Any]:
    """Yield the rows as copies, which don't keep the batch in memory."""
    for row in zip(*tf.nest.flatten(batch), strict=True):
        yield tf.nest.pack_sequence_as(batch, list(map(np.array, row)))


def _as_arrays(element: Any) -> Any:
    if isinstance(element, dict):
        return {name: _as_arrays(entry) for name, entry in element.items()}
    if isinstance(element, tuple):
        return tuple(map(_as_arrays, element))
    if isinstance(element, tf.RaggedTensor):
        element = element.to_tensor()  # ragged inside a sample: padded, as in a batch
    # Text as bytes of a fixed width: Python objects could only be saved by pickling.
    return np.asarray(element.numpy(), dtype="S" if element.dtype == tf.string else None)
