"""The operations of a graph that was made for a look: what they keep for a backward pass, and what they do besides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

# Stateful to TensorFlow, but running them twice changes nothing: they read, or stand for what is inside them.
_HARMLESS = {
    "Placeholder", "VarHandleOp", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape",
    "VarIsInitializedOp", "Assert", "While", "If", "Case", "PartitionedCall", "StatefulPartitionedCall", "Print",
    "PrintV2", "CheckNumericsV2", "XlaHostCompute", "EmptyTensorList", "TensorListReserve",
}  # fmt: skip
# Their results are made without work, or are another name for what is kept already.
_FREE = {
    "Placeholder", "ReadVariableOp", "VarHandleOp", "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims",
    "StopGradient", "Const", "NoOp", "PreventGradient", "Fill", "BroadcastTo",
}  # fmt: skip


class Nodes:
    """A graph's operations in the order in which they were made, with the functions that they call."""

    def __init__(self, graph: Any) -> None:
        written = graph.as_graph_def(add_shapes=True)
        by_name = {node.name: node for node in written.node}
        self.operations = graph.get_operations()
        self.places = {operation.name: place for place, operation in enumerate(self.operations)}
        self.nodes = [by_name[name] for name in self.places]
        self.functions = {function.signature.name: function.node_def for function in written.library.function}

    def has_effect(self, start: int, stop: int) -> bool:
        """Does any of these do something that a second run would do again, or draw anew?"""
        chosen = self.nodes[start:stop]
        called: set[str] = set()
        while chosen:
            if any(self._acts(node.op) for node in chosen):
                return True
            names = {name for node in chosen for name in _functions_of(node)} - called
            called |= names
            chosen = [node for name in names for node in self.functions.get(name, ())]
        return False

    def _acts(self, name: str) -> bool:
        if name in _HARMLESS or name in self.functions:
            return False
        known = op_def_registry.get(name)
        return known is None or bool(known.is_stateful)

    def hands_on(self, start: int, stop: int) -> bool:
        """Do any of these make a float that is used after them?"""
        floats = [tensor for one in self.operations[start:stop] for tensor in one.outputs if tensor.dtype.is_floating]
        return any(self.places[user.name] >= stop for tensor in floats for user in tensor.consumers())

    def kept_bytes(self, start: int, stop: int, steps: int) -> int:
        """Bytes of the floats that are made: not all of them are kept, but about the same share everywhere."""
        return self._kept(self.nodes[start:stop], steps)

    def _kept(self, nodes: Iterable[Any], steps: int) -> int:
        total = 0
        for node in nodes:
            if node.op in ("While", "StatelessWhile"):
                total += steps * self._kept(self.functions.get(node.attr["body"].func.name, ()), steps)
            elif node.op in ("PartitionedCall", "StatefulPartitionedCall"):
                total += self._kept(self.functions.get(node.attr["f"].func.name, ()), steps)
            elif node.op not in _FREE:
                kind = tf.dtypes.as_dtype(node.attr["T"].type or tf.float32.as_datatype_enum)
                if kind.is_floating:
                    total += kind.size * sum(map(_elements, node.attr["_output_shapes"].list.shape))
        return total


def _functions_of(node: Any) -> list[str]:
    named = [one for value in node.attr.values() for one in [value.func, *value.list.func]]
    return [one.name for one in named if one.name]


def _elements(shape: Any) -> int:
    if shape.unknown_rank:
        return 0
    count = 1
    for dimension in shape.dim:
        count *= max(dimension.size, 1)
    return count
