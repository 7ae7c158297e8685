"""Inspect a built model for `oomtune init`: its inputs, outputs, losses and accepted lengths."""

from __future__ import annotations

from typing import Any, Literal

import keras
import tensorflow as tf

from oomtune.domain import Candidate, Inspection, InspectOrder, TensorSpec
from oomtune.errors import TrialCrashed
from oomtune.worker.build import model
from oomtune.worker.build.compiling import loss_names

_LENGTH: Literal["sequence_length"] = "sequence_length"
# Tried if the model refuses the given length. It can be halved six times, and is rarely the size of another dimension.
_ROUND_LENGTH = 448
_USUAL_LENGTHS = (64, 128, 256)
_SHORT_LENGTHS = (8, 16, 32)


def inspect(order: InspectOrder) -> Inspection:
    network, length = _build(order)
    if not getattr(network, "inputs", None) or not getattr(network, "outputs", None):
        raise TrialCrashed(
            "the model does not show its inputs: it is subclassed or has no Input",
            hint="begin it with keras.Input, or write the spec by hand: oomtune init SPEC makes a start",
        )
    embeddings = [layer for layer in network._flatten_layers() if isinstance(layer, keras.layers.Embedding)]
    vocabulary = min((layer.input_dim for layer in embeddings), default=None)
    inputs = {tensor.name: _tensor_spec(tensor, length, vocabulary) for tensor in network.inputs}
    outputs = _outputs(network)
    has_length = any(_LENGTH in tensor.shape for tensor in inputs.values())
    return Inspection(
        inputs=inputs,
        outputs={name: _tensor_spec(tensor, length, None) for name, tensor in outputs.items()},
        activations={name: _activation(tensor) for name, tensor in outputs.items()},
        compiled=bool(network.compiled),
        losses=loss_names(network, outputs) if network.compiled else {},
        lengths=_lengths_to_search(order, network) if has_length else (),
        batch_size=next((int(tensor.shape[0]) for tensor in network.inputs if tensor.shape[0] is not None), None),
    )


def _build(order: InspectOrder) -> tuple[keras.Model, int | None]:
    """Return the model and the length that it was built with."""
    length = order.sequence_length
    try:
        return _build_with_length(order, length), length
    except (TypeError, ValueError):
        if length is None:
            raise
    # A model that halves its length several times takes only some lengths.
    return _build_with_length(order, _ROUND_LENGTH), _ROUND_LENGTH


def _build_with_length(order: InspectOrder, length: int | None) -> keras.Model:
    return model.make(order.model, order.folder, Candidate(batch_size=1, sequence_length=length))


def _outputs(network: keras.Model) -> dict[str, Any]:
    outputs = getattr(network, "_outputs_struct", None)
    if isinstance(outputs, dict):
        return outputs
    names = getattr(network, "output_names", None) or [tensor.name for tensor in network.outputs]
    return dict(zip(names, network.outputs, strict=True))


def _lengths_to_search(order: InspectOrder, network: keras.Model) -> tuple[int, ...]:
    """Return the usual lengths that the model takes, or short lengths if it takes none of the usual ones."""
    for lengths in (_USUAL_LENGTHS, _SHORT_LENGTHS):
        accepted = tuple(length for length in lengths if _accepts(order, network, length))
        if accepted:
            return accepted
    return _USUAL_LENGTHS


def _accepts(order: InspectOrder, network: keras.Model, length: int) -> bool:
    """Return True if the model can be called with this length. A position embedding, for example, may be shorter."""
    is_open = any(None in tensor.shape[1:] for tensor in network.inputs)
    try:
        built = network if is_open or order.sequence_length is None else _build_with_length(order, length)
        inputs = built.inputs[0] if isinstance(built, keras.Sequential) else built.input
        built(keras.tree.map_structure(lambda tensor: _zeros(tensor, length), inputs))
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        return False
    return True


def _zeros(tensor: Any, length: int) -> Any:
    sample = [length if size is None else size for size in tensor.shape[1:]]
    return keras.ops.zeros((tensor.shape[0] or 1, *sample), tensor.dtype)


def _tensor_spec(tensor: Any, length: int | None, vocabulary: int | None) -> TensorSpec:
    dtype = keras.backend.standardize_dtype(tensor.dtype)
    if dtype == "string":
        raise TrialCrashed(f"the input {tensor.name!r} is text, not numbers", hint="write the spec by hand")
    sizes = enumerate(tensor.shape[1:])
    shape = tuple(_LENGTH if size is None or (index == 0 and size == length) else int(size) for index, size in sizes)
    return TensorSpec(shape=shape, dtype=dtype, max=float(vocabulary or 2) if "int" in dtype else None)


def _activation(tensor: Any) -> str:
    """Return the name of the activation that makes the output, `linear` if there is none."""
    operation = tensor._keras_history.operation
    return getattr(getattr(operation, "activation", None), "__name__", "linear")
