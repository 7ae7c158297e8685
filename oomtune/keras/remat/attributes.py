"""What layers hold under names of their own, so that a look at them leaves no trace and sees what they would keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    import keras

_DEPTH = 2


class Attributes:
    """The attributes of some layers as they are now, with what lists and dicts among them hold."""

    def __init__(self, layers: Iterable[keras.Layer]) -> None:
        self.before = [(layer, dict(vars(layer)), _contents(vars(layer).values())) for layer in layers]

    def holders(self, graph: Any) -> list[keras.Layer]:
        """The layers that now hold tensors of the graph."""
        return [layer for layer, _, _ in self.before if _holds(vars(layer), graph, _DEPTH)]

    def put_back(self, graph: Any) -> None:
        """Take out again whatever belongs to the graph, which is about to go."""
        for layer, names, contents in self.before:
            for container, held in contents:
                if _holds(container, graph, 1):
                    _refill(container, held)
            for name, value in list(vars(layer).items()):
                if not _holds(value, graph, _DEPTH):
                    continue
                if name in names:
                    vars(layer)[name] = names[name]
                else:
                    del vars(layer)[name]


def _contents(values: Iterable[Any]) -> list[tuple[Any, Any]]:
    return [(value, _copy(value)) for value in values if isinstance(value, list | dict)]


def _copy(container: Any) -> Any:
    return dict(container.items()) if isinstance(container, dict) else list(container)


def _refill(container: Any, held: Any) -> None:
    """By Python's own methods: Keras' lists would take layers among what comes back for new ones."""
    if isinstance(container, dict):
        dict.clear(container)
        dict.update(container, held)
    else:
        list.clear(container)
        list.extend(container, held)


def _holds(value: Any, graph: Any, depth: int) -> bool:
    if isinstance(value, tf.Tensor):
        return getattr(value, "graph", None) is graph
    return depth > 0 and any(_holds(one, graph, depth - 1) for one in _inside(value))


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value
