"""Models that are graphs of layers: cut where little crosses from one part to the next, each part computed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras.src.models.functional import operation_fn as told

from oomtune.keras.remat import cuts, scratch
from oomtune.keras.remat.account import NOT_DENSE, Recomputed
from oomtune.keras.remat.again import is_plain, recomputed
from oomtune.keras.remat.surroundings import Surroundings, stateless

Runner = Callable[[Any], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class _Part:
    """Some nodes of the graph, with the tensors (by identity) that they take from before and hand on."""

    nodes: list[Any]
    takes: list[int]
    gives: list[int]
    again: bool

    @property
    def name(self) -> str:
        return named([node.operation for node in self.nodes])


def named(operations: Sequence[Any]) -> str:
    """A part's name: what it begins and ends with."""
    first, last = operations[0].name, operations[-1].name
    return first if first == last else f"{first} to {last}"


def cut(graph: Any, opened: Callable[[Any], bool], account: Recomputed, *, ends_the_model: bool) -> bool:
    """Make the graph run in parts, and say whether any of them is computed again.

    `opened` says of a node that parts inside its layer are computed again, so that it is not to be computed again as a
    whole.
    """
    nodes = _in_order(graph)
    last_use = _last_uses(graph, nodes)
    looks: dict[str, scratch.Seen] = {}
    steps = [_step(node, last_use, opened, looks) for node in nodes]
    parts = [_part(nodes, last_use, part) for part in cuts.parts(steps, ends_the_model=ends_the_model)]
    found = any(part.again for part in parts)
    if found:
        _install(graph, parts, account)
    return found


def _in_order(graph: Any) -> list[Any]:
    """Nodes in the order in which Keras runs them, without those that it skips."""
    known = {id(tensor) for tensor in graph.inputs}
    nodes = []
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        for node in graph._nodes_by_depth[depth]:
            if node.operation and not node.is_input and all(id(tensor) in known for tensor in node.input_tensors):
                nodes.append(node)
                known |= {id(tensor) for tensor in node.outputs}
    return nodes


def _last_uses(graph: Any, nodes: Sequence[Any]) -> dict[int, int]:
    """The place of the last node that uses each tensor; what the model returns is used after all of them."""
    last = {id(tensor): place for place, node in enumerate(nodes) for tensor in node.input_tensors}
    return last | {id(tensor): len(nodes) for tensor in graph.outputs}


def _step(
    node: Any, last_use: dict[int, int], opened: Callable[[Any], bool], looks: dict[str, scratch.Seen]
) -> cuts.Step:
    results = tuple((scratch.size_bytes(tensor), last_use.get(id(tensor), -1)) for tensor in node.outputs)
    made = sum(size for size, _ in results)
    operation = node.operation
    if isinstance(operation, keras.Layer) and opened(node):
        return cuts.Step(inside_bytes=made, results=results, repeatable=False)
    trusted = scratch.is_trusted(operation)
    key = _key(node) if trusted else None
    seen = looks.get(key) if key is not None else None
    if seen is None:
        seen = _seen(node, trusted) or scratch.Seen(kept_bytes=4 * made, repeatable=trusted)
        if key is not None:
            looks[key] = seen
    return cuts.Step(inside_bytes=max(seen.kept_bytes, made), results=results, repeatable=seen.repeatable)


def _seen(node: Any, trusted: bool) -> scratch.Seen | None:
    """What it does in training; code of others may do something else outside of it, and has to be repeatable then
    too."""
    seen = _look(node, training=True)
    if trusted or seen is None:
        return seen
    otherwise = _look(node, training=False)
    if otherwise is None:
        return None
    return scratch.Seen(kept_bytes=seen.kept_bytes, repeatable=seen.repeatable and otherwise.repeatable)


def _key(node: Any) -> str | None:
    """Layers with the same settings and the same inputs need looking at once."""
    operation = node.operation
    try:
        settings = operation.get_config() if isinstance(operation, keras.Layer) else {}
        settings = {name: value for name, value in settings.items() if name != "name"}
        inputs = [(tensor.shape, tensor.dtype) for tensor in node.input_tensors]
        return json.dumps([type(operation).__qualname__, settings, inputs], default=repr)
    except (NotImplementedError, TypeError, ValueError):
        return None


def _look(node: Any, *, training: bool) -> scratch.Seen | None:
    return scratch.look(
        running(node, training=training),
        specs(node),
        node.operation,
        surroundings=Surroundings.told(training=training),
    )


def running(node: Any, *, training: bool) -> Callable[[list[tf.Tensor]], Any]:
    """The node's operation as the graph would run it, as a function of its tensors alone."""

    def run(tensors: list[tf.Tensor]) -> Any:
        args, kwargs = node.arguments.fill_in(
            {id(tensor): value for tensor, value in zip(node.input_tensors, tensors, strict=True)}
        )
        return told(node.operation, training=training)(*args, **kwargs)

    return run


def specs(node: Any) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(scratch.filled(tensor.shape), tensor.dtype) for tensor in node.input_tensors]


def _part(nodes: Sequence[Any], last_use: dict[int, int], part: cuts.Part) -> _Part:
    chosen = list(nodes[part.start : part.stop])
    made = {id(tensor) for node in chosen for tensor in node.outputs}
    taken = [id(tensor) for node in chosen for tensor in node.input_tensors if id(tensor) not in made]
    given = [key for node in chosen for key in map(id, node.outputs) if last_use.get(key, -1) >= part.stop]
    return _Part(chosen, list(dict.fromkeys(taken)), given, part.again)


def _install(graph: Any, parts: Sequence[_Part], account: Recomputed) -> None:
    plain = graph._run_through_graph

    def run(inputs: Any, operation_fn: Runner = lambda operation: operation, **others: Any) -> Any:
        tensors = keras.tree.flatten(inputs)
        if others or stateless() or any(isinstance(tensor, keras.KerasTensor) for tensor in tensors):
            return plain(inputs, operation_fn=operation_fn, **others)
        known = dict(zip(map(id, graph.inputs), tensors, strict=True))
        for part in parts:
            values = [known[key] for key in part.takes]
            if part.again and not is_plain(values):
                account.skipped(part.name, NOT_DENSE)
            if part.again and is_plain(values):
                made = recomputed(_computing(part, operation_fn), values, graph)
                account.ran(part.name)
            else:
                made = _computing(part, operation_fn)(values)
            known.update(zip(part.gives, made, strict=True))
        return keras.tree.pack_sequence_as(graph._outputs_struct, [known[id(tensor)] for tensor in graph.outputs])

    graph._run_through_graph = run


def _computing(part: _Part, operation_fn: Runner) -> Callable[[list[Any]], list[Any]]:
    def compute(values: list[Any]) -> list[Any]:
        known = dict(zip(part.takes, values, strict=True))
        for node in part.nodes:
            args, kwargs = node.arguments.fill_in(known)
            results = operation_fn(node.operation)(*args, **kwargs)
            known.update(zip(map(id, node.outputs), keras.tree.flatten(results), strict=False))
        return [known[key] for key in part.gives]

    return compute
