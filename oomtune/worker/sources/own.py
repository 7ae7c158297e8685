"""Data from a function of the user's, and pipelines in general."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.errors import DataUnreadable
from oomtune.worker.code import load, required_by
from oomtune.worker.sources.arrays import held_source, usable
from oomtune.worker.sources.pipelines import axes_of, elements, pipeline_source
from oomtune.worker.sources.source import Bounds, Source, by_name
from oomtune.worker.sources.stream import Checker, Raw, finished

_KEY = "dataset.python"
_EXPECTED = "return a tf.data.Dataset of (inputs, targets) samples, or a pair of arrays or of dicts of arrays"


def python_source(name: str, folder: str, bounds: Bounds) -> Source:
    made = _called(load(name, folder, _KEY), name)
    if isinstance(made, tf.data.Dataset):
        _refuse_what_is_no_pair(made, name)
        return _of_pipeline(made, name, bounds)
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise DataUnreadable(f"{_KEY}: {name} returned {_described(made)}", hint=_EXPECTED)
    inputs, targets = (_side(side, arrays, name) for side, arrays in zip(("inputs", "targets"), made, strict=True))
    if any(isinstance(array, tf.RaggedTensor) for array in (*by_name(inputs).values(), *by_name(targets).values())):
        _refuse_differing_counts([*by_name(inputs).values(), *by_name(targets).values()], name)
        return _of_pipeline(tf.data.Dataset.from_tensor_slices((inputs, targets)), name, bounds)
    return held_source(inputs, targets, name=name, key=_KEY, called={})


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
    if isinstance(arrays, dict) and arrays:
        return {str(key): _array(f"{side}.{key}", array, name) for key, array in arrays.items()}
    return _array(side, arrays, name)


def _array(what: str, array: Any, name: str) -> Any:
    if isinstance(array, tf.RaggedTensor):
        return array
    if not isinstance(array, np.ndarray | tf.Tensor):
        raise DataUnreadable(f"{_KEY}: {name} returned {_described(array)} as {what}", hint=_EXPECTED)
    array = array.numpy() if isinstance(array, tf.Tensor) else array
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


def _refuse_what_is_no_pair(dataset: tf.data.Dataset, name: str) -> None:
    element = dataset.element_spec
    if not isinstance(element, tuple) or len(element) != 2:
        raise DataUnreadable(
            f"{_KEY}: the dataset of {name} has elements of {_described(element)}, not (inputs, targets)",
            hint="leave the sample weights out: dataset.map(lambda inputs, targets, weights: (inputs, targets))"
            if isinstance(element, tuple) and len(element) == 3
            else "map each element to a pair: dataset.map(lambda element: (inputs, targets))",
        )
    for side, specs in zip(("inputs", "targets"), element, strict=True):
        for spec in by_name(specs).values():
            if not isinstance(spec, tf.TensorSpec | tf.RaggedTensorSpec):
                raise DataUnreadable(
                    f"{_KEY}: the {side} of {name} are {_described(spec)}, not a tensor or a dict of tensors",
                    hint="map several inputs to a dict with the names of the model's inputs",
                )


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if isinstance(value, tuple | list | dict) else f"a {kind}"


def _of_pipeline(dataset: tf.data.Dataset, function: str, bounds: Bounds) -> Source:
    name = f"{_KEY} ({function})"

    def pairs() -> Iterator[Raw]:
        for number, (inputs, targets) in enumerate(elements(dataset, name), 1):
            yield inputs, targets, f"{name}, sample {number}"

    source = pipeline_source(finished(pairs(), Checker(_KEY, by_side=False), None), dataset, name, bounds)
    source.dataset = dataset
    source.axes = axes_of(dataset.element_spec[0])
    return source
