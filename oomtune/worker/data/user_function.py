"""Data from a function of the user's, and pipelines in general."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.errors import DataUnreadable
from oomtune.worker.build.user_code import load, required_by
from oomtune.worker.data.arrays import held_source, usable
from oomtune.worker.data.nesting import mapped, parts
from oomtune.worker.data.samples import Checker, Raw, finished
from oomtune.worker.data.source import SIDES, Bounds, Source
from oomtune.worker.data.tf_pipelines import axes_of, elements, pipeline_source

_KEY = "dataset.python"
_EXPECTED = (
    "return a tf.data.Dataset of (inputs, targets) or (inputs, targets, weights) samples, or as many arrays; "
    "several inputs are a tuple or a dict"
)


def python_source(name: str, folder: str, bounds: Bounds) -> Source:
    made = _called(load(name, folder, _KEY), name)
    if isinstance(made, tf.data.Dataset):
        _refuse_what_is_no_sample(made.element_spec, name)
        return _of_pipeline(made, name, bounds)
    if not isinstance(made, tuple | list) or len(made) not in (2, len(SIDES)):
        raise DataUnreadable(f"{_KEY}: {name} returned {_described(made)}", hint=_EXPECTED)
    held = tuple(_side(side, arrays, name) for side, arrays in zip(SIDES, made, strict=False))
    if any(isinstance(array, tf.RaggedTensor) for array in parts(held).values()):
        _refuse_differing_counts(list(parts(held).values()), name)
        return _of_pipeline(tf.data.Dataset.from_tensor_slices(held), name, bounds)
    return held_source(held, name=name, key=_KEY, called={})


def _called(function: Callable[..., Any], name: str) -> Any:
    missing = required_by(function)
    if missing:
        raise DataUnreadable(
            f"{_KEY}: {name} needs {' and '.join(map(repr, missing))}",
            hint="it is called without arguments: give them defaults",
        )
    try:
        return function()
    except SystemExit as error:
        raise DataUnreadable(
            f"{_KEY}: {name} ended the process: sys.exit({error.code!r})", hint="return the data, or raise an error"
        ) from error


def _side(side: str, arrays: Any, name: str) -> Any:
    if not parts(arrays):
        raise DataUnreadable(f"{_KEY}: {name} returned {_described(arrays)} as {side}", hint=_EXPECTED)
    return mapped(lambda part, array: _array(f"{side}.{part}".rstrip("."), array, name), arrays)


def _array(what: str, array: Any, name: str) -> Any:
    if isinstance(array, tf.RaggedTensor):
        return array
    if not isinstance(array, np.ndarray | tf.Tensor):
        raise DataUnreadable(f"{_KEY}: {name} returned {_described(array)} as {what}", hint=_EXPECTED)
    # Of a tensor with one text in it TensorFlow makes no array.
    array = np.asarray(array.numpy()) if isinstance(array, tf.Tensor) else array
    return usable(_without_objects(array), f"{name}: {what}", _KEY, text=True)


def _without_objects(array: Any) -> Any:
    """Texts that are Python objects as bytes of a fixed width, which can be saved without pickling."""
    if array.dtype.kind != "O" or not all(isinstance(entry, str | bytes) for entry in array.flat):
        return array
    encoded = [entry.encode() if isinstance(entry, str) else entry for entry in array.flat]
    return np.array(encoded, dtype="S").reshape(array.shape)


def _refuse_differing_counts(arrays: list[Any], name: str) -> None:
    counts = [int(array.shape[0]) for array in arrays]
    if len(set(counts)) > 1:
        raise DataUnreadable(
            f"{_KEY}: the arrays of {name} have {' and '.join(map(str, counts))} samples",
            hint="all arrays need one entry a sample",
        )


def _refuse_what_is_no_sample(element: Any, name: str) -> None:
    if not isinstance(element, tuple) or len(element) not in (2, len(SIDES)):
        raise DataUnreadable(
            f"{_KEY}: the dataset of {name} has elements of {_described(element)}, not (inputs, targets)",
            hint="map each element to a pair: dataset.map(lambda element: (inputs, targets))",
        )
    for side, specs in zip(SIDES, element, strict=False):
        unusable = [spec for spec in parts(specs).values() if not isinstance(spec, tf.TensorSpec | tf.RaggedTensorSpec)]
        if unusable or not parts(specs):
            raise DataUnreadable(
                f"{_KEY}: the {side} of {name} are {_described(*unusable[:1] or [specs])}, not tensors",
                hint="map them to a tensor, or to a dict or a tuple of tensors as the model takes them",
            )


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if isinstance(value, tuple | list | dict) else f"a {kind}"


def _of_pipeline(dataset: tf.data.Dataset, function: str, bounds: Bounds) -> Source:
    name = f"{_KEY} ({function})"

    def samples() -> Iterator[Raw]:
        for number, sides in enumerate(elements(dataset, name), 1):
            yield sides, f"{name}, sample {number}"

    source = pipeline_source(finished(samples(), Checker(_KEY, by_side=False), None), dataset, name, bounds)
    source.dataset = dataset
    source.axes = axes_of(dataset.element_spec[0])
    return source
