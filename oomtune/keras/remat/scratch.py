"""Looking at what a layer would do, in a graph that is thrown away: what it keeps, and whether it can be run twice."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager import record

from oomtune.keras.remat import ops
from oomtune.keras.remat.again import Updates, is_plain
from oomtune.keras.remat.attributes import Attributes
from oomtune.keras.remat.surroundings import Surroundings, mask_of, set_mask, training_mode

# Classes of Keras that run code of others, or write to weights that they also train.
_NOT_TRUSTED = {"Lambda", "SpectralNormalization", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper"}
# What an open dimension is taken to be.
_BATCH, _LENGTH = 4, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    kept_bytes: int
    repeatable: bool


@dataclass(slots=True, eq=False)
class Call:
    """A layer that was run in a look: which of the graph's operations are its own, and what it gave."""

    layer: keras.Layer
    start: int
    signature: Any = None
    """How it was called."""
    stop: int = 0
    gives: list[tf.Tensor] = field(default_factory=list)
    inside: list[Call] = field(default_factory=list)
    written: list[Any] = field(default_factory=list)
    """The Keras variables that it wrote to."""
    gives_others: bool = False
    """Does it give anything but dense tensors?"""


class _CannotBeRun(Exception):
    """The function can't do without real tensors."""


class _WatchedUpdates(Updates):
    def __init__(self, open_calls: list[Call]) -> None:
        super().__init__()
        self.open_calls = open_calls

    def add_update(self, update: tuple[Any, tf.Tensor]) -> None:
        super().add_update(update)
        for call in self.open_calls:
            call.written.append(update[0])


class Look:
    """One run in a graph of its own, of which nothing is left in the layers."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        arguments: Any,
        whole: Any,
        watched: Sequence[keras.Layer],
        *,
        open_sizes: bool,
    ) -> None:
        self.loop_steps = _loop_steps(arguments)
        self.graph = tf.__internal__.FuncGraph("oomtune_scratch")
        self.root = Call(whole, 0)
        self.open_calls = [self.root]
        self.updates = _WatchedUpdates(self.open_calls)
        layers = whole._flatten_layers() if isinstance(whole, keras.Layer) else []
        attributes = Attributes([layer for layer in layers if not is_trusted(layer)])
        try:
            with self.graph.as_default(), self.updates, self._recorded(watched):
                stand_ins = keras.tree.map_structure(lambda leaf: _placeholder(leaf, open_sizes), arguments)
                result = _run(function, stand_ins)
            self.holders = {id(layer) for layer in attributes.holders(self.graph)}
        finally:
            attributes.put_back(self.graph)
        self._close(self.root, result)
        self.nodes = ops.Nodes(self.graph)
        self.taken_unasked = list(self._taken_unasked())

    @contextlib.contextmanager
    def _recorded(self, layers: Sequence[keras.Layer]) -> Iterator[None]:
        before = [(layer, vars(layer).get("call")) for layer in layers]
        for layer, _ in before:
            vars(layer)["call"] = self._recording(layer, layer.call)
        try:
            yield
        finally:
            for layer, call in before:
                if call is None:
                    del vars(layer)["call"]
                else:
                    vars(layer)["call"] = call

    def _recording(self, layer: keras.Layer, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen = Call(layer, len(self.graph.get_operations()), signature(args, kwargs))
            self.open_calls[-1].inside.append(seen)
            self.open_calls.append(seen)
            try:
                result = plain(*args, **kwargs)
            finally:
                self.open_calls.pop()
            self._close(seen, result)
            return result

        return call

    def _close(self, call: Call, result: Any) -> None:
        call.stop = len(self.graph.get_operations())
        call.gives = [leaf for leaf in keras.tree.flatten(result) if isinstance(leaf, tf.Tensor)]
        call.gives_others = not is_plain(result)

    def kept_bytes(self, start: int, stop: int) -> int:
        return self.nodes.kept_bytes(start, stop, self.loop_steps)

    def _taken_unasked(self) -> Iterator[int]:
        """Where a tensor is used that comes from outside and is no argument, but has a gradient to be found."""
        for outside, inside in self.graph.captures:
            if outside.dtype.is_floating and record.should_record_backprop([outside]):
                yield from (self.nodes.places[user.name] for user in inside.consumers())

    def is_repeatable(self, call: Call) -> bool:
        """Does it do the same when it is run again, and is it seen by nobody that it is?"""
        if call.gives_others or any(call.start <= place < call.stop for place in self.taken_unasked):
            return False
        layers = call.layer._flatten_layers() if isinstance(call.layer, keras.Layer) else []
        if any(id(layer) in self.holders for layer in layers):
            return False  # a tensor that it keeps would be one of the first run, which has no gradient
        contained = all(
            not variable.trainable and getattr(self.updates.get_current_value(variable), "graph", None) is self.graph
            for variable in call.written
        )
        return contained and not self.nodes.has_effect(call.start, call.stop)


def is_trusted(operation: Any) -> bool:
    """Is all code that this runs Keras' own, which has its state in Keras variables?"""
    inside = operation._flatten_layers(include_self=False) if isinstance(operation, keras.Layer) else []
    return all(_is_keras(one) for one in [operation, *inside])


def _is_keras(operation: Any) -> bool:
    """It, and the functions that it was given, such as an activation."""
    if type(operation).__name__ in _NOT_TRUSTED or not _from_keras(type(operation)):
        return False
    given = [value for value in vars(operation).values() if callable(value) and not isinstance(value, keras.Layer)]
    return all(_from_keras(value if hasattr(value, "__qualname__") else type(value)) for value in given)


def _from_keras(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).split(".")[0] in ("keras", "oomtune")


def look(function: Callable[[Any], Any], arguments: Any, owner: Any, *, surroundings: Surroundings) -> Seen | None:
    """What `function(arguments)`, which runs `owner`, would do; arguments are tensors or specs. None where it can't be
    run so."""
    seen = inner(function, arguments, owner, (), surroundings=surroundings)
    if seen is None:
        return None
    return Seen(kept_bytes=seen.kept_bytes(0, seen.root.stop), repeatable=seen.is_repeatable(seen.root))


def inner(
    function: Callable[[Any], Any],
    arguments: Any,
    whole: Any,
    watched: Sequence[keras.Layer],
    *,
    surroundings: Surroundings,
) -> Look | None:
    """The same, with each call of the layers that are watched."""
    for open_sizes in (False, True):
        with contextlib.suppress(_CannotBeRun), surroundings.again():
            return Look(function, arguments, whole, watched, open_sizes=open_sizes)
    return None


def _run(function: Callable[[Any], Any], stand_ins: Any) -> Any:
    try:
        return function(stand_ins)
    except Exception as error:  # code of the user's may raise anything without real tensors
        raise _CannotBeRun from error


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The way a layer is called, as far as it may do one thing or another by it."""
    leaves = keras.tree.flatten((args, kwargs))
    return training_mode(kwargs), tuple(kwargs), tuple(_described(leaf) for leaf in leaves)


def _described(leaf: Any) -> Any:
    if isinstance(leaf, tf.Tensor):
        return leaf.dtype, leaf.shape.rank, mask_of(leaf) is not None
    return leaf if isinstance(leaf, bool | int | float | str) else type(leaf)


def filled(shape: Any) -> tuple[int, ...]:
    """A shape with sizes for its open dimensions; only proportions matter."""
    return tuple(size if size is not None else _LENGTH if place else _BATCH for place, size in enumerate(shape))


def size_bytes(tensor: Any) -> int:
    shape = tensor.shape
    if isinstance(shape, tf.TensorShape) and shape.rank is None:
        return 0
    return math.prod(filled(shape)) * int(tf.dtypes.as_dtype(tensor.dtype).size)


def _loop_steps(arguments: Any) -> int:
    """How often a loop over one of the arguments runs."""
    leaves = [leaf for leaf in keras.tree.flatten(arguments) if isinstance(leaf, (tf.Tensor, tf.TensorSpec))]
    lengths = [filled(leaf.shape)[1] for leaf in leaves if (leaf.shape.rank or 0) > 1]
    return max(lengths, default=_LENGTH)


def _placeholder(leaf: Any, open_sizes: bool) -> Any:
    if not isinstance(leaf, (tf.Tensor, tf.TensorSpec)):
        return leaf
    shape = leaf.shape if open_sizes or leaf.shape.rank is None else filled(leaf.shape)
    stand_in = tf.compat.v1.placeholder(leaf.dtype, shape)
    if isinstance(leaf, tf.Tensor) and mask_of(leaf) is not None:
        set_mask(stand_in, _placeholder(mask_of(leaf), open_sizes))
    return stand_in
