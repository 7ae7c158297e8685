"""Which layer made what: the scope of the graph that each layer's ops are in, and the size of what it returns."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import keras
import tensorflow as tf

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Called:
    """A layer as it was called once."""

    layer: keras.layers.Layer
    output_bytes: int


class Listener:
    """Listens to the calls of every layer of every model in the process, whoever made it: `Model.fit` and loops of the
    user's own are alike."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.calls: dict[str, Called] = {}
        gc.collect()
        self.models = _living(keras.Model)
        self.layers = list(_unique(layer for model in self.models for layer in _parts(model)))
        for layer in (*self.models, *self.layers):
            self._listen(layer)

    def weights(self) -> list[Any]:
        return list(_unique(weight for model in self.models for weight in model.weights))

    def trainable(self) -> list[Any]:
        return list(_unique(weight for model in self.models for weight in model.trainable_weights))

    def optimizer_state(self) -> list[Any]:
        optimizers = _living(keras.optimizers.Optimizer)
        return list(_unique(variable for optimizer in optimizers for variable in optimizer.variables))

    def optimizer_scopes(self) -> tuple[str, ...]:
        return tuple(optimizer.name for optimizer in _living(keras.optimizers.Optimizer))

    def classes(self) -> set[str]:
        return {type(layer).__name__ for model in self.models for layer in model._flatten_layers(include_self=False)}

    def _listen(self, layer: keras.layers.Layer) -> None:
        call = layer.call

        @functools.wraps(call)
        def heard(*args: Any, **kwargs: Any) -> Any:
            # Layers of one class get scopes such as lstm_1 and lstm_1_2, and which is whose only the moment tells.
            scope = tf.get_current_name_scope() or layer.name
            returned = call(*args, **kwargs)
            self.calls.setdefault(scope, Called(layer, self._bytes(returned)))
            return returned

        layer.call = heard

    def _bytes(self, returned: Any) -> int:
        tensors = [tensor for tensor in tf.nest.flatten(returned) if isinstance(tensor, tf.Tensor)]
        return sum(self._size(tensor) * tensor.dtype.size for tensor in tensors)

    def _size(self, tensor: tf.Tensor) -> int:
        """How many numbers it holds; the batch is what the graph does not know."""
        dimensions = list(tensor.shape) if tensor.shape.rank is not None else []
        size = self.batch_size if dimensions[:1] == [None] else 1
        for dimension in dimensions:
            size *= dimension or 1
        return size


def size_bytes(variables: Iterable[Any]) -> int:
    return sum(int(variable.value.shape.num_elements()) * variable.value.dtype.size for variable in variables)


def _parts(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """The layers of a model and of the models in it; what a layer is made of belongs to it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _parts(layer)
        elif not isinstance(layer, keras.layers.InputLayer):
            yield layer


def _living(kind: type[_T]) -> list[_T]:
    # By the type itself: `isinstance` would wake up whatever lazy modules and proxies are about.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def _unique(things: Iterable[_T]) -> Iterator[_T]:
    seen: set[int] = set()
    for thing in things:
        if id(thing) not in seen:
            seen.add(id(thing))
            yield thing
