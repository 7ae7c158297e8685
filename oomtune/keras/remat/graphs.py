"""Rematerialise a model that is a graph of layers: cut it where little crosses, and recompute each part."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from oomtune.keras.private_keras import CallState, is_stateless, operation_fn
from oomtune.keras.remat import cuts, trial_run
from oomtune.keras.remat.account import NOT_DENSE, Recomputed
from oomtune.keras.remat.recompute import is_plain, recomputed

Runner = Callable[[Any], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class _Part:
    """Some nodes of the graph, with the ids of the tensors that they take from outside and hand on."""

    nodes: list[Any]
    inputs: list[int]
    outputs: list[int]
    again: bool

    @property
    def name(self) -> str:
        return name_part([node.operation for node in self.nodes])


def name_part(operations: Sequence[Any]) -> str:
    """Name a part by its first and last operation."""
    first, last = operations[0].name, operations[-1].name
    return first if first == last else f"{first} to {last}"


def recompute_in_parts(
    graph: Any, is_opened: Callable[[Any], bool], account: Recomputed, *, ends_the_model: bool
) -> bool:
    """Make the graph run in parts, and return whether any of them is recomputed.

    `is_opened(node)` tells whether parts inside the node's layer are recomputed. Such a layer is not recomputed as a
    whole.
    """
    nodes = _execution_order(graph)
    last_use = _last_uses(graph, nodes)
    costs: dict[str, trial_run.Cost] = {}
    steps = [_step(node, last_use, is_opened, costs) for node in nodes]
    parts = [_bind(nodes, last_use, part) for part in cuts.parts(steps, ends_the_model=ends_the_model)]
    has_parts = any(part.again for part in parts)
    if has_parts:
        _install(graph, parts, account)
    return has_parts


def _execution_order(graph: Any) -> list[Any]:
    """List the nodes as Keras runs them, without those that it skips."""
    available = {id(tensor) for tensor in graph.inputs}
    nodes = []
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        for node in graph._nodes_by_depth[depth]:
            if node.operation and not node.is_input and all(id(tensor) in available for tensor in node.input_tensors):
                nodes.append(node)
                available |= {id(tensor) for tensor in node.outputs}
    return nodes


def _last_uses(graph: Any, nodes: Sequence[Any]) -> dict[int, int]:
    """Map each tensor to the last node that uses it. The model's outputs are used after all nodes."""
    last = {id(tensor): index for index, node in enumerate(nodes) for tensor in node.input_tensors}
    return last | {id(tensor): len(nodes) for tensor in graph.outputs}


def _step(
    node: Any, last_use: dict[int, int], is_opened: Callable[[Any], bool], costs: dict[str, trial_run.Cost]
) -> cuts.Step:
    results = tuple((trial_run.size_bytes(tensor), last_use.get(id(tensor), -1)) for tensor in node.outputs)
    results_bytes = sum(size for size, _ in results)
    operation = node.operation
    if isinstance(operation, keras.Layer) and is_opened(node):
        return cuts.Step(inside_bytes=results_bytes, results=results, repeatable=False)
    trusted = trial_run.is_trusted(operation)
    key = _key(node) if trusted else None
    cost = costs.get(key) if key is not None else None
    if cost is None:
        cost = _cost(node, trusted) or trial_run.Cost(kept_bytes=4 * results_bytes, repeatable=trusted)
        if key is not None:
            costs[key] = cost
    return cuts.Step(inside_bytes=max(cost.kept_bytes, results_bytes), results=results, repeatable=cost.repeatable)


def _cost(node: Any, trusted: bool) -> trial_run.Cost | None:
    """Measure a node in training. Foreign code may act differently outside training, so check it there too."""
    cost = _cost_in_mode(node, training=True)
    if trusted or cost is None:
        return cost
    outside = _cost_in_mode(node, training=False)
    if outside is None:
        return None
    return trial_run.Cost(kept_bytes=cost.kept_bytes, repeatable=cost.repeatable and outside.repeatable)


def _key(node: Any) -> str | None:
    """Return one key for all layers with the same settings and inputs, so each kind is measured once."""
    operation = node.operation
    try:
        settings = operation.get_config() if isinstance(operation, keras.Layer) else {}
        settings = {name: value for name, value in settings.items() if name != "name"}
        inputs = [(tensor.shape, tensor.dtype) for tensor in node.input_tensors]
        return json.dumps([type(operation).__qualname__, settings, inputs], default=repr)
    except (NotImplementedError, TypeError, ValueError):
        return None


def _cost_in_mode(node: Any, *, training: bool) -> trial_run.Cost | None:
    return trial_run.cost_of(
        node_function(node, training=training),
        input_specs(node),
        node.operation,
        call_state=CallState.inside_model(training=training),
    )


def node_function(node: Any, *, training: bool) -> Callable[[list[tf.Tensor]], Any]:
    """Return the node's operation, as the graph runs it, as a function of its tensors alone."""

    def run(tensors: list[tf.Tensor]) -> Any:
        args, kwargs = node.arguments.fill_in(
            {id(tensor): value for tensor, value in zip(node.input_tensors, tensors, strict=True)}
        )
        return operation_fn(node.operation, training=training)(*args, **kwargs)

    return run


def input_specs(node: Any) -> list[tf.TensorSpec]:
    return [tf.TensorSpec(trial_run.fill_shape(tensor.shape), tensor.dtype) for tensor in node.input_tensors]


def _bind(nodes: Sequence[Any], last_use: dict[int, int], part: cuts.Part) -> _Part:
    chosen = list(nodes[part.start : part.stop])
    made = {id(tensor) for node in chosen for tensor in node.outputs}
    inputs = [id(tensor) for node in chosen for tensor in node.input_tensors if id(tensor) not in made]
    outputs = [key for node in chosen for key in map(id, node.outputs) if last_use.get(key, -1) >= part.stop]
    return _Part(chosen, list(dict.fromkeys(inputs)), outputs, part.again)


def _install(graph: Any, parts: Sequence[_Part], account: Recomputed) -> None:
    plain = graph._run_through_graph

    def run(inputs: Any, operation_fn: Runner = lambda operation: operation, **others: Any) -> Any:
        tensors = keras.tree.flatten(inputs)
        if others or is_stateless() or any(isinstance(tensor, keras.KerasTensor) for tensor in tensors):
            return plain(inputs, operation_fn=operation_fn, **others)
        values = dict(zip(map(id, graph.inputs), tensors, strict=True))
        for part in parts:
            arguments = [values[key] for key in part.inputs]
            if part.again and is_plain(arguments):
                results = recomputed(_part_function(part, operation_fn), arguments, graph)
                account.ran(part.name)
            else:
                if part.again:
                    account.skipped(part.name, NOT_DENSE)
                results = _part_function(part, operation_fn)(arguments)
            values.update(zip(part.outputs, results, strict=True))
        return keras.tree.pack_sequence_as(graph._outputs_struct, [values[id(tensor)] for tensor in graph.outputs])

    graph._run_through_graph = run


def _part_function(part: _Part, operation_fn: Runner) -> Callable[[list[Any]], list[Any]]:
    def compute(arguments: list[Any]) -> list[Any]:
        values = dict(zip(part.inputs, arguments, strict=True))
        for node in part.nodes:
            args, kwargs = node.arguments.fill_in(values)
            results = operation_fn(node.operation)(*args, **kwargs)
            values.update(zip(map(id, node.outputs), keras.tree.flatten(results), strict=False))
        return [values[key] for key in part.outputs]

    return compute
