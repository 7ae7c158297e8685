"""A model from the spec's list of layers: one after the other, or a graph when a layer says what it comes after."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

from oomtune.domain import LAYERS_INSIDE, Candidate, ClassConfig
from oomtune.errors import TrialCrashed
from oomtune.worker.build import user_code as code

_INPUTS = ("Input", "InputLayer")
# These take all that they come after as one list; other layers take it as arguments in order.
_MERGING = (
    "Add", "AdditiveAttention", "Attention", "Average", "Concatenate", "Dot", "HashedCrossing", "Maximum", "Minimum",
    "Multiply", "Subtract",
)  # fmt: skip


def build(layers: tuple[ClassConfig, ...], folder: str, candidate: Candidate) -> keras.Model:
    maker = _Maker(folder, candidate)
    inputs = [layer for layer in layers if layer.class_name in _INPUTS]
    if len(inputs) > 1 or any("inbound" in layer.config for layer in layers):
        return _graph(layers, maker)
    model = keras.Sequential()
    for index, layer in enumerate(layers):
        with _said_of(index, layer):
            model.add(maker.make(layer.class_name, layer.config))
    return model


def _graph(layers: tuple[ClassConfig, ...], maker: _Maker) -> keras.Model:
    """Each layer comes after those that its `inbound` names, or after the one before it. What nothing comes after is
    an output."""
    inputs: dict[str, Any] = {}
    made: dict[str, Any] = {}
    used: set[str] = set()
    before = ""
    for index, layer in enumerate(layers):
        with _said_of(index, layer):
            if layer.class_name in _INPUTS:
                tensor = maker.make(layer.class_name, layer.config)
                name = str(layer.config.get("name") or tensor.name)
                inputs[name] = tensor
            else:
                inbound = layer.config.get("inbound", before)
                names = [inbound] if isinstance(inbound, str) else list(inbound)
                made_layer = maker.make(
                    layer.class_name, {key: value for key, value in layer.config.items() if key != "inbound"}
                )
                name = made_layer.name
                after = [made[other] for other in names]
                tensor = made_layer(after) if layer.class_name in _MERGING else made_layer(*after)
                used.update(names)
        made[name] = tensor
        before = name
    outputs = {name: tensor for name, tensor in made.items() if name not in used and name not in inputs}
    idle = [name for name in inputs if name not in used]
    if idle:
        raise TrialCrashed(f"model.layers: nothing comes after the input {idle[0]!r}", hint="name it in an `inbound`")
    return keras.Model(_alone(inputs), _alone(outputs))


def _alone(tensors: Mapping[str, Any]) -> Any:
    return next(iter(tensors.values())) if len(tensors) == 1 else dict(tensors)


class _Maker:
    """Makes layers for one candidate."""

    def __init__(self, folder: str, candidate: Candidate) -> None:
        self.folder = folder
        self.candidate = candidate

    def make(self, name: str, config: Mapping[str, Any]) -> Any:
        arguments = {key: self._inner(key, value) for key, value in config.items()}
        if name in _INPUTS:
            return keras.Input(**arguments)
        if isinstance(arguments.get("vocabulary"), str):
            arguments["vocabulary"] = str(Path(self.folder, arguments["vocabulary"]))  # a file, as layers have it
        maker = code.load(name, self.folder, "model.layers") if ":" in name else getattr(keras.layers, name)
        return maker(**arguments)

    def _inner(self, key: str, value: Any) -> Any:
        if key not in LAYERS_INSIDE:
            return with_length(value, self.candidate)
        if isinstance(value, list):
            return [self._inner(key, entry) for entry in value]
        name, config = (value, {}) if isinstance(value, str) else next(iter(value.items()))
        return self.make(name, config or {})


def with_length(value: Any, candidate: Candidate) -> Any:
    """The same configuration with the word `sequence_length` replaced by the length under trial."""
    if isinstance(value, dict):
        return {key: with_length(entry, candidate) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [with_length(entry, candidate) for entry in value]
    return candidate.sequence_length if value == "sequence_length" else value


@contextlib.contextmanager
def _said_of(index: int, layer: ClassConfig) -> Iterator[None]:
    """Whatever goes wrong inside is said of this layer of the spec."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise TrialCrashed(
            f"model.layers[{index}] ({layer.class_name}): {first_words(error)}",
            hint="see that layer in the Keras API docs",
        ) from error


def first_words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
