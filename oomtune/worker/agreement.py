"""Does the data suit the model? Said in terms of the spec before the first step, not out of the middle of a graph."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from oomtune.domain import TensorSpec, WorkOrder
from oomtune.errors import TrialCrashed

_ELEMENTWISE = ("meansquarederror", "meanabsoluteerror", "binarycrossentropy", "categoricalcrossentropy", "huber")
_SHORT = {"mse": "meansquarederror", "mae": "meanabsoluteerror"}


def check(order: WorkOrder, network: keras.Model, batches: tf.data.Dataset) -> None:
    """Raise `TrialCrashed` when the model can't be trained on such batches. What can't be seen is not checked."""
    inputs, targets = batches.element_spec
    if not network.built or not getattr(network, "inputs", None):
        return
    _check_inputs(order, network, inputs)
    _check_tokens(order, network)
    if len(network.outputs) == 1 and isinstance(targets, tf.TensorSpec):
        _check_targets(order, network, targets)


def _at(order: WorkOrder, side: str) -> str:
    """The entry of the spec that this side of the samples comes from."""
    kinds = [entry.name for entry in dataclasses.fields(order.dataset) if entry.name != "tokenizer"]
    kind = next((kind for kind in kinds if getattr(order.dataset, kind) is not None), "")
    return f"dataset.{kind}" if kind in ("python", "images", "text") else f"dataset.{kind}.{side}"


def _check_inputs(order: WorkOrder, network: keras.Model, given: Any) -> None:
    wanted = {tensor.name: tensor for tensor in network.inputs}
    if isinstance(given, dict) and not set(wanted) <= set(given):
        raise TrialCrashed(
            f"{_at(order, 'inputs')} has {_listed(given)}, and the model's inputs are {_listed(wanted)}",
            hint="give each input of the model by its name",
        )
    if not isinstance(given, dict) and len(wanted) > 1:
        raise TrialCrashed(
            f"{_at(order, 'inputs')} is one tensor, and the model has {len(wanted)} inputs: {_listed(wanted)}",
            hint="give a mapping with each of them",
        )
    for name, tensor in wanted.items():
        one = given[name] if isinstance(given, dict) else given
        shape, expected = one.shape[1:], tensor.shape[1:]
        if one.dtype == tf.string and tensor.dtype != "string":
            raise TrialCrashed(
                f"{_at(order, 'inputs')} is text, and the model takes numbers", hint="split it to tokens"
            )
        if not _alike(shape, expected):
            of = f" ({name!r})" if isinstance(given, dict) else ""
            raise TrialCrashed(
                f"{_at(order, 'inputs')}{of} has samples of {_shown(shape)}, and the model takes {_shown(expected)}",
                hint="make the shapes the same; sequence_length in both stands for the value under trial",
            )


def _check_tokens(order: WorkOrder, network: keras.Model) -> None:
    largest = _largest(order, "inputs")
    if largest is None or len(network.inputs) > 1:
        return
    for layer in network.layers:
        if not isinstance(layer, keras.layers.Embedding) or largest < layer.input_dim or not _is_fed(layer, network):
            continue
        raise TrialCrashed(
            f"{_at(order, 'inputs')} has tokens up to {largest}, and the embedding {layer.name!r} has "
            f"{layer.input_dim} rows, for tokens up to {layer.input_dim - 1}",
            hint=f"make its input_dim {largest + 1}, or keep tokens below {layer.input_dim} (dataset.tokenizer.max)",
        )


def _is_fed(layer: Any, network: keras.Model) -> bool:
    """Does the layer get the model's input itself, and not what another layer made of it?"""
    tensors = [tensor for node in layer._inbound_nodes for tensor in node.input_tensors]
    return any(tensor is network.inputs[0] for tensor in tensors)


def _check_targets(order: WorkOrder, network: keras.Model, given: tf.TensorSpec) -> None:
    loss, output = loss_name(network), network.outputs[0].shape[1:]
    shape, largest = given.shape[1:], _largest(order, "targets")
    if loss == "sparsecategoricalcrossentropy":
        classes = output[-1]
        ignores = getattr(network.loss, "ignore_class", None) is not None
        if largest is not None and classes is not None and largest >= classes and not ignores:
            raise TrialCrashed(
                f"{_at(order, 'targets')} has classes up to {largest}, and the model tells {classes} apart, from 0 on",
                hint="check the labels, or give the last layer more units",
            )
        output = output[:-1]
    elif loss == "binarycrossentropy" and largest is not None and largest > 1:
        raise TrialCrashed(
            f"{_at(order, 'targets')} has labels up to {largest}, and the loss is for labels 0 and 1",
            hint="check the labels, or take SparseCategoricalCrossentropy",
        )
    elif loss not in _ELEMENTWISE:
        return
    if not _alike(shape, output):
        raise TrialCrashed(
            f"{_at(order, 'targets')} has samples of {_shown(shape)}, and by the loss the model's output needs "
            f"{_shown(output)}",
            hint="change the shape of the targets, the last layer or the loss",
        )


def loss_name(network: keras.Model) -> str:
    """The name of the loss, in one spelling; empty when it has none."""
    loss = getattr(network, "loss", None)
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")
    plain = str(name).replace("_", "").lower()
    return _SHORT.get(plain, plain)


def _largest(order: WorkOrder, side: str) -> int | None:
    """The largest whole number on this side of the samples."""
    if order.scan is not None:
        return order.scan.largest_input if side == "inputs" else order.scan.largest_target
    tensors = getattr(order.dataset.synthetic, side, None)
    if not isinstance(tensors, TensorSpec) or "int" not in tensors.dtype or tensors.max is None:
        return None
    return int(tensors.max) - 1


def _alike(shape: Any, expected: Any) -> bool:
    """Are they the same where both are known? As for Keras, a last dimension of 1 may be there or not."""
    shape, expected = list(shape), list(expected)
    for one, other in ((shape, expected), (expected, shape)):
        if len(one) == len(other) + 1 and one[-1] == 1:
            one.pop()
    return len(shape) == len(expected) and all(
        size is None or wanted is None or size == wanted for size, wanted in zip(shape, expected, strict=True)
    )


def _shown(shape: Any) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names)
