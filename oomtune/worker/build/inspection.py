"""What can be seen of a model once it is built: its inputs, its outputs, and whether it comes compiled."""

from __future__ import annotations

from typing import Any, Literal

import keras
import tensorflow as tf

from oomtune.domain import Candidate, Inspection, InspectOrder, TensorSpec
from oomtune.errors import TrialCrashed
from oomtune.worker.build import model
from oomtune.worker.build.blueprint import Blueprint
from oomtune.worker.build.outputs import loss_names

_LENGTH: Literal["sequence_length"] = "sequence_length"
# Taken where another length is not: it can be halved, and no other dimension is likely to have it.
_ROUND = 448
_USUAL = (64, 128, 256)
_SHORT = (8, 16, 32)


def inspect(order: InspectOrder) -> Inspection:
    built, length = _built(order)
    if not getattr(built, "inputs", None) or not getattr(built, "outputs", None):
        raise TrialCrashed(
            "the model's inputs can't be seen: it is subclassed, or has no Input",
            hint="begin it with keras.Input, or write the spec by hand: oomtune init SPEC makes a start",
        )
    inputs = {tensor.name: _seen(tensor, length, _vocabulary(built)) for tensor in built.inputs}
    outputs = _outputs(built)
    varies = any(_LENGTH in tensor.shape for tensor in inputs.values())
    return Inspection(
        inputs=inputs,
        outputs={name: _seen(tensor, length, None) for name, tensor in outputs.items()},
        activations={name: _activation(tensor) for name, tensor in outputs.items()},
        compiled=bool(built.compiled),
        losses=loss_names(built, outputs) if built.compiled else {},
        lengths=_lengths(order, built) if varies else (),
        batch_size=next((int(tensor.shape[0]) for tensor in built.inputs if tensor.shape[0] is not None), None),
    )


def _built(order: InspectOrder) -> tuple[keras.Model, int | None]:
    """The model, and the length that it was built with."""
    length = order.sequence_length
    try:
        return _at(order, length), length
    except (TypeError, ValueError):
        if length is None:
            raise
    return _at(order, _ROUND), _ROUND  # one that halves its length some times may not take just any


def _at(order: InspectOrder, length: int | None) -> keras.Model:
    candidate = Candidate(batch_size=1, sequence_length=length)
    return model.made(Blueprint(spec=order.model, folder=order.folder, candidate=candidate))


def _outputs(built: keras.Model) -> dict[str, Any]:
    made = getattr(built, "_outputs_struct", None)
    if isinstance(made, dict):
        return made
    names = getattr(built, "output_names", None) or [tensor.name for tensor in built.outputs]
    return dict(zip(names, built.outputs, strict=True))


def _lengths(order: InspectOrder, built: keras.Model) -> tuple[int, ...]:
    """The lengths to search: those of the usual ones that the model takes, or of shorter ones if it takes none."""
    for lengths in (_USUAL, _SHORT):
        taken = tuple(length for length in lengths if _takes(order, built, length))
        if taken:
            return taken
    return _USUAL


def _takes(order: InspectOrder, built: keras.Model, length: int) -> bool:
    """Can it be called with samples of this length? A table of positions, say, may end before."""
    is_open = any(None in tensor.shape[1:] for tensor in built.inputs)
    try:
        network = built if is_open or order.sequence_length is None else _at(order, length)
        given = network.inputs[0] if isinstance(network, keras.Sequential) else network.input
        network(keras.tree.map_structure(lambda tensor: _zeros(tensor, length), given))
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        return False
    return True


def _zeros(tensor: Any, length: int) -> Any:
    sample = [length if size is None else size for size in tensor.shape[1:]]
    return keras.ops.zeros((tensor.shape[0] or 1, *sample), tensor.dtype)


def _seen(tensor: Any, length: int | None, vocabulary: int | None) -> TensorSpec:
    whole = keras.backend.standardize_dtype(tensor.dtype)
    if whole == "string":
        raise TrialCrashed(f"the input {tensor.name!r} is text, not numbers", hint="write the spec by hand")
    sizes = enumerate(tensor.shape[1:])
    shape = tuple(_LENGTH if size is None or (index == 0 and size == length) else int(size) for index, size in sizes)
    return TensorSpec(shape=shape, dtype=whole, max=float(vocabulary or 2) if "int" in whole else None)


def _vocabulary(built: keras.Model) -> int | None:
    """The most tokens that every embedding of the model knows."""
    return min((layer.input_dim for layer in _all(built) if isinstance(layer, keras.layers.Embedding)), default=None)


def _all(built: keras.Model) -> list[Any]:
    return list(built._flatten_layers(include_self=False))


def _activation(tensor: Any) -> str:
    """The name of the activation that the output comes from; `linear` when there is none to see."""
    operation = tensor._keras_history.operation
    return getattr(getattr(operation, "activation", None), "__name__", "linear")
