"""Build a model from the spec's `model.layers`: a stack, or a graph if a layer has `inbound`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

from oomtune.domain import LAYERS_INSIDE, Candidate, ClassConfig
from oomtune.errors import TrialCrashed
from oomtune.worker.build import user_code

_INPUTS = ("Input", "InputLayer")
# These layers take all their inputs as one list. Other layers take them as separate arguments.
_MERGING = (
    "Add", "AdditiveAttention", "Attention", "Average", "Concatenate", "Dot", "HashedCrossing", "Maximum", "Minimum",
    "Multiply", "Subtract",
)  # fmt: skip


def build(layers: tuple[ClassConfig, ...], folder: str, candidate: Candidate) -> keras.Model:
    """Return the model, not compiled."""
    factory = _LayerFactory(folder, candidate)
    inputs = [layer for layer in layers if layer.class_name in _INPUTS]
    if len(inputs) > 1 or any("inbound" in layer.config for layer in layers):
        return _graph(layers, factory)
    model = keras.Sequential()
    for index, layer in enumerate(layers):
        with _naming_layer(index, layer):
            model.add(factory.make(layer.class_name, layer.config))
    return model


def _graph(layers: tuple[ClassConfig, ...], factory: _LayerFactory) -> keras.Model:
    """Connect each layer to its `inbound` layers, or to the layer before it. Unused layers are outputs."""
    inputs: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    used: set[str] = set()
    previous = ""
    for index, layer in enumerate(layers):
        with _naming_layer(index, layer):
            if layer.class_name in _INPUTS:
                tensor = factory.make(layer.class_name, layer.config)
                name = str(layer.config.get("name") or tensor.name)
                inputs[name] = tensor
            else:
                config = dict(layer.config)
                inbound = config.pop("inbound", previous)
                sources = [inbound] if isinstance(inbound, str) else list(inbound)
                keras_layer = factory.make(layer.class_name, config)
                name = keras_layer.name
                arguments = [tensors[source] for source in sources]
                tensor = keras_layer(arguments) if layer.class_name in _MERGING else keras_layer(*arguments)
                used.update(sources)
        tensors[name] = tensor
        previous = name
    outputs = {name: tensor for name, tensor in tensors.items() if name not in used and name not in inputs}
    unused = [name for name in inputs if name not in used]
    if unused:
        raise TrialCrashed(
            f"model.layers: no layer uses the input {unused[0]!r}", hint="name it in the `inbound` of a layer"
        )
    return keras.Model(_unwrap_single(inputs), _unwrap_single(outputs))


def _unwrap_single(tensors: Mapping[str, Any]) -> Any:
    return next(iter(tensors.values())) if len(tensors) == 1 else dict(tensors)


class _LayerFactory:
    """Makes Keras layers from their configurations, for one candidate."""

    def __init__(self, folder: str, candidate: Candidate) -> None:
        self.folder = folder
        self.candidate = candidate

    def make(self, name: str, config: Mapping[str, Any]) -> Any:
        arguments = {key: self._argument(key, value) for key, value in config.items()}
        if name in _INPUTS:
            return keras.Input(**arguments)
        if isinstance(arguments.get("vocabulary"), str):
            arguments["vocabulary"] = str(Path(self.folder, arguments["vocabulary"]))  # the path of a file
        cls = user_code.load(name, self.folder, "model.layers") if ":" in name else getattr(keras.layers, name)
        return cls(**arguments)

    def _argument(self, key: str, value: Any) -> Any:
        if key not in LAYERS_INSIDE:
            return with_length(value, self.candidate)
        if isinstance(value, list):
            return [self._argument(key, entry) for entry in value]
        name, config = (value, {}) if isinstance(value, str) else next(iter(value.items()))
        return self.make(name, config or {})


def with_length(value: Any, candidate: Candidate) -> Any:
    """Return the configuration with the word `sequence_length` replaced by the candidate's length."""
    if isinstance(value, dict):
        return {key: with_length(entry, candidate) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [with_length(entry, candidate) for entry in value]
    return candidate.sequence_length if value == "sequence_length" else value


@contextlib.contextmanager
def _naming_layer(index: int, layer: ClassConfig) -> Iterator[None]:
    """Raise Keras' errors as a `TrialCrashed` that names this layer of the spec."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise TrialCrashed(
            f"model.layers[{index}] ({layer.class_name}): {first_line(error)}",
            hint="see this layer in the Keras API docs",
        ) from error


def first_line(error: Exception) -> str:
    """Return the first line of the error's message that is not blank, or the error's type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
