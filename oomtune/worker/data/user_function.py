"""Read what the user's own function returns: a tf.data.Dataset or arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import PythonData
from oomtune.errors import DataUnreadable
from oomtune.worker.build.user_code import load, required_by
from oomtune.worker.data.arrays import check_sample_counts, checked_array
from oomtune.worker.data.samples import Checker, RawSample, checked_samples
from oomtune.worker.data.source import SIDES, Bounds, HeldArrays, Source, Stream
from oomtune.worker.data.tf_pipelines import axes_of, elements, pipeline_stream
from oomtune.worker.nesting import map_parts, parts

_KEY = "dataset.python"
_EXPECTED = (
    "return a tf.data.Dataset of (inputs, targets) or (inputs, targets, weights) samples, or a tuple of arrays; "
    "put several inputs into a tuple or a dict"
)


def python_source(data: PythonData, folder: str, bounds: Bounds) -> Source:
    name = data.function
    returned = _call(load(name, folder, _KEY), name)
    if isinstance(returned, tf.data.Dataset):
        _check_elements(returned.element_spec, name)
        return _pipeline_source(returned, name, bounds)
    if not isinstance(returned, tuple | list) or len(returned) not in (2, len(SIDES)):
        raise DataUnreadable(f"{_KEY}: {name} returned {_describe(returned)}", hint=_EXPECTED)
    arrays = tuple(_side(side, nest, name) for side, nest in zip(SIDES, returned, strict=False))
    check_sample_counts(arrays, name, _KEY)
    if any(isinstance(array, tf.RaggedTensor) for array in parts(arrays).values()):
        return _pipeline_source(tf.data.Dataset.from_tensor_slices(arrays), name, bounds)
    return HeldArrays(arrays=arrays)


def _call(function: Callable[..., Any], name: str) -> Any:
    required = required_by(function)
    if required:
        raise DataUnreadable(
            f"{_KEY}: {name} needs {' and '.join(map(repr, required))}",
            hint="it is called without arguments: give them defaults",
        )
    try:
        return function()
    except SystemExit as error:
        raise DataUnreadable(
            f"{_KEY}: {name} ended the process: sys.exit({error.code!r})", hint="return the data, or raise an error"
        ) from error


def _side(side: str, nest: Any, name: str) -> Any:
    if not parts(nest):
        raise DataUnreadable(f"{_KEY}: {name} returned {_describe(nest)} as {side}", hint=_EXPECTED)
    return map_parts(lambda part, array: _array(f"{side}.{part}".rstrip("."), array, name), nest)


def _array(label: str, array: Any, name: str) -> Any:
    if isinstance(array, tf.RaggedTensor):
        return array
    if not isinstance(array, np.ndarray | tf.Tensor):
        raise DataUnreadable(f"{_KEY}: {name} returned {_describe(array)} as {label}", hint=_EXPECTED)
    # TensorFlow returns a plain `bytes` for a tensor with a single text.
    array = np.asarray(array.numpy()) if isinstance(array, tf.Tensor) else array
    return checked_array(_without_objects(array), f"{name}: {label}", _KEY, allow_text=True)


def _without_objects(array: Any) -> Any:
    """Convert texts that are Python objects to bytes of a fixed width, so that they can be saved without pickling."""
    if array.dtype.kind != "O" or not all(isinstance(entry, str | bytes) for entry in array.flat):
        return array
    encoded = [entry.encode() if isinstance(entry, str) else entry for entry in array.flat]
    return np.array(encoded, dtype="S").reshape(array.shape)


def _check_elements(element: Any, name: str) -> None:
    """Raise `DataUnreadable` unless the pipeline's elements are samples of tensors."""
    if not isinstance(element, tuple) or len(element) not in (2, len(SIDES)):
        raise DataUnreadable(
            f"{_KEY}: each element of the dataset of {name} is {_describe(element)}, not (inputs, targets)",
            hint="map each element to a pair: dataset.map(lambda element: (inputs, targets))",
        )
    for side, specs in zip(SIDES, element, strict=False):
        unusable = [spec for spec in parts(specs).values() if not isinstance(spec, tf.TensorSpec | tf.RaggedTensorSpec)]
        if unusable or not parts(specs):
            raise DataUnreadable(
                f"{_KEY}: the {side} of {name} are {_describe(*unusable[:1] or [specs])}, not tensors",
                hint="map them to a tensor, or to a dict or tuple of tensors as the model takes them",
            )


def _describe(value: Any) -> str:
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return f"{article} {kind} of {len(value)}" if isinstance(value, tuple | list | dict) else f"{article} {kind}"


def _pipeline_source(dataset: tf.data.Dataset, function: str, bounds: Bounds) -> Stream:
    name = f"{_KEY} ({function})"

    def samples() -> Iterator[RawSample]:
        for number, sides in enumerate(elements(dataset, name), 1):
            yield sides, f"{name}, sample {number}"

    stream = pipeline_stream(checked_samples(samples(), Checker(_KEY, has_sides=False)), dataset, name, bounds)
    stream.pipeline = dataset
    stream.axes = axes_of(dataset.element_spec[0])
    return stream
