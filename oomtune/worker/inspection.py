"""What can be seen of a model once it is built: its inputs, its outputs, and whether it comes compiled."""

from __future__ import annotations

from typing import Any, Literal

import keras

from oomtune.domain import Candidate, Inspection, InspectOrder, TensorSpec
from oomtune.errors import TrialCrashed
from oomtune.worker import agreement, model

_LENGTH: Literal["sequence_length"] = "sequence_length"


def inspect(order: InspectOrder) -> Inspection:
    built = model.made(order.model, order.folder, Candidate(batch_size=1, sequence_length=order.sequence_length))
    if not getattr(built, "inputs", None) or not getattr(built, "outputs", None):
        raise TrialCrashed(
            "the model's inputs can't be seen: it is subclassed, or has no Input",
            hint="begin it with keras.Input, or write the spec by hand: oomtune init SPEC makes a start",
        )
    length = order.sequence_length
    inputs = {tensor.name: _seen(tensor, length, _vocabulary(built)) for tensor in built.inputs}
    names = getattr(built, "output_names", None) or [tensor.name for tensor in built.outputs]
    outputs = dict(zip(names, built.outputs, strict=True))
    return Inspection(
        inputs=inputs,
        outputs={name: _seen(tensor, length, None) for name, tensor in outputs.items()},
        activations={name: _activation(tensor) for name, tensor in outputs.items()},
        compiled=bool(built.compiled),
        loss=agreement.loss_name(built) if built.compiled else "",
    )


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
