"""Run a layer in a throw-away graph to learn what it keeps for the backward pass and whether it can run twice."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from oomtune.keras.private_keras import CallState, mask_of, set_mask, training_mode
from oomtune.keras.private_tensorflow import FuncGraph, op_def_registry, record
from oomtune.keras.remat.recompute import Updates, is_plain

# Keras classes that run foreign code, or write to weights that they also train.
_NOT_TRUSTED = {"Lambda", "SpectralNormalization", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper"}
# Sizes that stand in for open dimensions; only proportions matter.
_BATCH, _LENGTH = 4, 64
# Stateful for TensorFlow, but harmless to run twice: they only read, or the functions inside them are checked instead.
_HARMLESS = {
    "Placeholder", "VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape",
    "VarIsInitializedOp", "Assert", "While", "If", "Case", "PartitionedCall", "StatefulPartitionedCall", "Print",
    "PrintV2", "CheckNumericsV2", "XlaHostCompute", "EmptyTensorList", "TensorListReserve",
}  # fmt: skip
# Their results cost no work, or share memory with something that is kept anyway.
_FREE = {
    "Placeholder", "ReadVariableOp", "VarHandleOp", "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims",
    "StopGradient", "Const", "NoOp", "PreventGradient", "Fill", "BroadcastTo",
}  # fmt: skip
_DEPTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    kept_bytes: int
    repeatable: bool


@dataclass(slots=True, eq=False)
class Call:
    """One call of a layer in a trial run, with the range of graph operations that it added."""

    layer: keras.Layer
    start: int
    signature: Any = None
    """How the layer was called."""
    stop: int = 0
    outputs: list[tf.Tensor] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """The calls of other layers inside this one."""
    written: list[Any] = field(default_factory=list)
    """The Keras variables that the call wrote to."""
    has_other_outputs: bool = False
    """Whether the call returned anything other than dense tensors."""


class _NeedsRealTensors(Exception):
    """The function fails on symbolic tensors."""


class _RecordedUpdates(Updates):
    def __init__(self, open_calls: list[Call]) -> None:
        super().__init__()
        self._open_calls = open_calls

    def add_update(self, update: tuple[Any, tf.Tensor]) -> None:
        super().add_update(update)
        for call in self._open_calls:
            call.written.append(update[0])


class TrialRun:
    """One run in a graph of its own. The layers keep no trace of it."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        arguments: Any,
        whole: Any,
        watched: Sequence[keras.Layer],
        *,
        open_sizes: bool,
    ) -> None:
        self._loop_steps = _count_loop_steps(arguments)
        self._graph = FuncGraph("oomtune_trial_run")
        self.root = Call(whole, 0)
        self._open_calls = [self.root]
        self._updates = _RecordedUpdates(self._open_calls)
        layers = whole._flatten_layers() if isinstance(whole, keras.Layer) else []
        attributes = _Attributes([layer for layer in layers if not is_trusted(layer)])
        try:
            with self._graph.as_default(), self._updates, self._recorded(watched):
                placeholders = keras.tree.map_structure(lambda leaf: _placeholder(leaf, open_sizes), arguments)
                result = _run(function, placeholders)
            self._holders = {id(layer) for layer in attributes.holders(self._graph)}
        finally:
            attributes.restore(self._graph)
        self._close(self.root, result)
        self.operations = Operations(self._graph)
        self._captured_uses = list(self._uses_of_captures())

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
            current = Call(layer, len(self._graph.get_operations()), signature(args, kwargs))
            self._open_calls[-1].calls.append(current)
            self._open_calls.append(current)
            try:
                result = plain(*args, **kwargs)
            finally:
                self._open_calls.pop()
            self._close(current, result)
            return result

        return call

    def _close(self, call: Call, result: Any) -> None:
        call.stop = len(self._graph.get_operations())
        call.outputs = [leaf for leaf in keras.tree.flatten(result) if isinstance(leaf, tf.Tensor)]
        call.has_other_outputs = not is_plain(result)

    def kept_bytes(self, start: int, stop: int) -> int:
        """Estimate what a range of operations keeps for the backward pass."""
        return self.operations.kept_bytes(start, stop, self._loop_steps)

    def _uses_of_captures(self) -> Iterator[int]:
        """Yield where the graph uses a tensor from outside that is not an argument but needs a gradient."""
        for outside, inside in self._graph.captures:
            if outside.dtype.is_floating and record.should_record_backprop([outside]):
                yield from (self.operations.indices[user.name] for user in inside.consumers())

    def is_repeatable(self, call: Call) -> bool:
        """Return whether running the call a second time gives the same result and has no side effect."""
        if call.has_other_outputs or any(call.start <= index < call.stop for index in self._captured_uses):
            return False
        layers = call.layer._flatten_layers() if isinstance(call.layer, keras.Layer) else []
        if any(id(layer) in self._holders for layer in layers):
            return False  # the layer would keep a tensor of the first run, which has no gradient
        contained = all(
            not variable.trainable and getattr(self._updates.get_current_value(variable), "graph", None) is self._graph
            for variable in call.written
        )
        return contained and not self.operations.have_effect(call.start, call.stop)


def cost_of(function: Callable[[Any], Any], arguments: Any, owner: Any, *, call_state: CallState) -> Cost | None:
    """Measure `function(arguments)`, which runs `owner`, on tensors or specs. Return None if it needs real tensors."""
    run = run_once(function, arguments, owner, (), call_state=call_state)
    if run is None:
        return None
    return Cost(kept_bytes=run.kept_bytes(0, run.root.stop), repeatable=run.is_repeatable(run.root))


def run_once(
    function: Callable[[Any], Any], arguments: Any, whole: Any, watched: Sequence[keras.Layer], *, call_state: CallState
) -> TrialRun | None:
    """Run a function in a throw-away graph and record the calls of the watched layers, or return None."""
    for open_sizes in (False, True):
        with contextlib.suppress(_NeedsRealTensors), call_state.restored():
            return TrialRun(function, arguments, whole, watched, open_sizes=open_sizes)
    return None


def _run(function: Callable[[Any], Any], placeholders: Any) -> Any:
    try:
        return function(placeholders)
    except Exception as error:  # the user's code may raise anything on symbolic tensors
        raise _NeedsRealTensors from error


def is_trusted(operation: Any) -> bool:
    """Return whether the operation runs only Keras' own code, which keeps all state in Keras variables."""
    inside = operation._flatten_layers(include_self=False) if isinstance(operation, keras.Layer) else []
    return all(_is_keras(part) for part in [operation, *inside])


def _is_keras(operation: Any) -> bool:
    """Return whether the operation's class, and each function it holds (such as an activation), is Keras' own."""
    if type(operation).__name__ in _NOT_TRUSTED or not _from_keras(type(operation)):
        return False
    functions = [value for value in vars(operation).values() if callable(value) and not isinstance(value, keras.Layer)]
    return all(_from_keras(value if hasattr(value, "__qualname__") else type(value)) for value in functions)


def _from_keras(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).split(".")[0] in ("keras", "oomtune")


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a key for how a layer is called. Calls with equal keys should run the same operations."""
    leaves = keras.tree.flatten((args, kwargs))
    return training_mode(kwargs), tuple(kwargs), tuple(_leaf_signature(leaf) for leaf in leaves)


def _leaf_signature(leaf: Any) -> Any:
    if isinstance(leaf, tf.Tensor):
        return leaf.dtype, leaf.shape.rank, mask_of(leaf) is not None
    return leaf if isinstance(leaf, bool | int | float | str) else type(leaf)


def fill_shape(shape: Any) -> tuple[int, ...]:
    """Replace open dimensions by stand-in sizes."""
    return tuple(size if size is not None else _LENGTH if index else _BATCH for index, size in enumerate(shape))


def size_bytes(tensor: Any) -> int:
    shape = tensor.shape
    if isinstance(shape, tf.TensorShape) and shape.rank is None:
        return 0
    return math.prod(fill_shape(shape)) * int(tf.dtypes.as_dtype(tensor.dtype).size)


def _count_loop_steps(arguments: Any) -> int:
    """Estimate how often a loop over the longest argument runs."""
    leaves = [leaf for leaf in keras.tree.flatten(arguments) if isinstance(leaf, (tf.Tensor, tf.TensorSpec))]
    lengths = [fill_shape(leaf.shape)[1] for leaf in leaves if (leaf.shape.rank or 0) > 1]
    return max(lengths, default=_LENGTH)


def _placeholder(leaf: Any, open_sizes: bool) -> Any:
    if not isinstance(leaf, (tf.Tensor, tf.TensorSpec)):
        return leaf
    shape = leaf.shape if open_sizes or leaf.shape.rank is None else fill_shape(leaf.shape)
    placeholder = tf.compat.v1.placeholder(leaf.dtype, shape)
    if isinstance(leaf, tf.Tensor) and mask_of(leaf) is not None:
        set_mask(placeholder, _placeholder(mask_of(leaf), open_sizes))
    return placeholder


class Operations:
    """The operations of a graph in creation order, with the functions that they call."""

    def __init__(self, graph: Any) -> None:
        graph_def = graph.as_graph_def(add_shapes=True)
        by_name = {node.name: node for node in graph_def.node}
        self._operations = graph.get_operations()
        self.indices = {operation.name: index for index, operation in enumerate(self._operations)}
        self._nodes = [by_name[name] for name in self.indices]
        self._functions = {function.signature.name: function.node_def for function in graph_def.library.function}

    def have_effect(self, start: int, stop: int) -> bool:
        """Return whether running a range twice would repeat a side effect or draw other random numbers."""
        nodes = self._nodes[start:stop]
        visited: set[str] = set()
        while nodes:
            if any(self._has_effect(node.op) for node in nodes):
                return True
            names = {name for node in nodes for name in _called_functions(node)} - visited
            visited |= names
            nodes = [node for name in names for node in self._functions.get(name, ())]
        return False

    def _has_effect(self, op: str) -> bool:
        if op in _HARMLESS or op in self._functions:
            return False
        definition = op_def_registry.get(op)
        return definition is None or bool(definition.is_stateful)

    def hand_on_floats(self, start: int, stop: int) -> bool:
        """Return whether a later operation uses a float tensor of this range."""
        tensors = [tensor for operation in self._operations[start:stop] for tensor in operation.outputs]
        floats = [tensor for tensor in tensors if tensor.dtype.is_floating]
        return any(self.indices[user.name] >= stop for tensor in floats for user in tensor.consumers())

    def kept_bytes(self, start: int, stop: int, loop_steps: int) -> int:
        """Add up the float tensors of a range. The backward pass keeps about the same share of them everywhere."""
        return self._kept_bytes(self._nodes[start:stop], loop_steps)

    def _kept_bytes(self, nodes: Iterable[Any], loop_steps: int) -> int:
        total = 0
        for node in nodes:
            if node.op in ("While", "StatelessWhile"):
                body = self._functions.get(node.attr["body"].func.name, ())
                total += loop_steps * self._kept_bytes(body, loop_steps)
            elif node.op in ("PartitionedCall", "StatefulPartitionedCall"):
                total += self._kept_bytes(self._functions.get(node.attr["f"].func.name, ()), loop_steps)
            elif node.op not in _FREE:
                dtype = tf.dtypes.as_dtype(node.attr["T"].type or tf.float32.as_datatype_enum)
                if dtype.is_floating:
                    total += dtype.size * sum(map(_count_elements, node.attr["_output_shapes"].list.shape))
        return total


def _called_functions(node: Any) -> list[str]:
    functions = [function for value in node.attr.values() for function in [value.func, *value.list.func]]
    return [function.name for function in functions if function.name]


def _count_elements(shape: Any) -> int:
    return 0 if shape.unknown_rank else math.prod(max(dimension.size, 1) for dimension in shape.dim)


class _Attributes:
    """A snapshot of layers' attributes, with their lists and dicts, to undo the effects of a trial run."""

    def __init__(self, layers: Iterable[keras.Layer]) -> None:
        self._before = [(layer, dict(vars(layer)), _copy_containers(vars(layer).values())) for layer in layers]

    def holders(self, graph: Any) -> list[keras.Layer]:
        """Return the layers that now hold tensors of the graph."""
        return [layer for layer, _, _ in self._before if _holds(vars(layer), graph, _DEPTH)]

    def restore(self, graph: Any) -> None:
        """Remove everything that belongs to the graph."""
        for layer, attributes, containers in self._before:
            for container, contents in containers:
                if _holds(container, graph, 1):
                    _refill(container, contents)
            for name, value in list(vars(layer).items()):
                if not _holds(value, graph, _DEPTH):
                    continue
                if name in attributes:
                    vars(layer)[name] = attributes[name]
                else:
                    del vars(layer)[name]


def _copy_containers(values: Iterable[Any]) -> list[tuple[Any, Any]]:
    containers = [value for value in values if isinstance(value, list | dict)]
    return [
        (container, dict(container.items()) if isinstance(container, dict) else list(container))
        for container in containers
    ]


def _refill(container: Any, contents: Any) -> None:
    """Put the contents back with Python's own methods: Keras' lists would register the layers as new ones."""
    if isinstance(container, dict):
        dict.clear(container)
        dict.update(container, contents)
    else:
        list.clear(container)
        list.extend(container, contents)


def _holds(value: Any, graph: Any, depth: int) -> bool:
    if isinstance(value, tf.Tensor):
        return getattr(value, "graph", None) is graph
    return depth > 0 and any(_holds(entry, graph, depth - 1) for entry in _entries(value))


def _entries(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value
