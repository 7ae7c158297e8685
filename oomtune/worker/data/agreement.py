"""Does the data suit the model? Said in terms of the spec before the first step, not out of the middle of a graph."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from weakref import WeakSet

import keras
import tensorflow as tf

from oomtune.domain import Climb, NpyData, PythonData, SyntheticData, TensorSpec, WorkOrder
from oomtune.errors import TrialCrashed
from oomtune.keras.private_keras import compute_output_spec
from oomtune.worker.build import outputs
from oomtune.worker.build.outputs import compared, listed, plain
from oomtune.worker.data.nesting import parts
from oomtune.worker.process.error_reasons import reason

_ELEMENTWISE = ("meansquarederror", "meanabsoluteerror", "binarycrossentropy", "categoricalcrossentropy", "huber")
_SPARSE = "sparsecategoricalcrossentropy"
# Models whose inputs can't be seen and that were called already: a climb asks for each of its sizes.
_called: WeakSet[keras.Model] = WeakSet()


def check(order: WorkOrder, network: keras.Model, batches: tf.data.Dataset) -> None:
    """Raise `TrialCrashed` when the model can't be trained on such batches. What can't be seen is not checked."""
    inputs, targets, *weights = batches.element_spec
    if network.built and getattr(network, "inputs", None):
        fed = _fed(order, network, inputs)
        _check_batch_size(order, network)
        for tensor, part, given in fed:
            _check_input(order, tensor, part, given)
            _check_tokens(order, network, tensor, part)
        made = getattr(network, "_outputs_struct", network.outputs)
    elif order.training.run_eagerly or network in _called:
        return
    else:
        _called.add(network)
        made = _made_of(order, network, inputs)
    outputs.check(order.training, network, made, targets, _at(order, "targets"))
    for name, (output, loss) in compared(network, made, targets).items():
        given = parts(targets)[name]
        if isinstance(given, tf.TensorSpec):
            _check_target(order, f"targets.{name}", given, output.shape[1:], loss)
            for weight in weights:
                _check_weights(order, parts(weight).get(name), output.shape[1:], loss)


def _made_of(order: WorkOrder, network: keras.Model, inputs: Any) -> Any:
    """What a model whose inputs can't be seen makes of such batches, as `fit` finds it out before it trains; nothing
    where it can't be called without numbers."""
    symbols = tf.nest.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of how it is built: what is wrong is raised, too
            return compute_output_spec(network, symbols, training=False)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None  # if it is an error of the model's, training raises it, with the user's own traceback
    except tf.errors.OperatorNotAllowedInGraphError as error:
        raise TrialCrashed(
            f"{_model_key(order)}: the model's call can't be made a graph: {reason(error).partition('. ')[0]}",
            hint="use tf.cond or tf.while_loop there, put @tf.function before call, or set training.run_eagerly: true",
        ) from error
    except (KeyError, TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise TrialCrashed(
            f"{_at(order, 'inputs')} has {_described(inputs)}, and the model can't be called with it: "
            f"{type(error).__name__}: {reason(error)}",
            hint="make the shapes those that the model takes",
        ) from error


def _at(order: WorkOrder, part: str, place: str = "") -> str:
    """Where this part of the samples comes from: the file, if there is one, and the entry of the spec. `place` is the
    line of the file, where that is known."""
    side, _, name = part.partition(".")
    data = order.dataset
    kind = "" if data is None else data.kind
    key = f"dataset.{kind}" if kind in ("python", "images", "text") else f"dataset.{kind}.{side}"
    paths = getattr(data, "paths", None) or getattr(data, "path", None)
    if isinstance(data, NpyData):
        of_side = getattr(data, side)
        paths = of_side.get(name) if isinstance(of_side, dict) else of_side
    file = paths[0] if isinstance(paths, tuple) else paths
    where = f"{place or Path(order.folder, file)}: " if file else ""
    called = f"{side}[{name}]" if name.isdigit() else repr(name)
    return f"{where}{key}{f' ({called})' if name else ''}"


def _fed(order: WorkOrder, network: keras.Model, given: Any) -> list[tuple[Any, str, Any]]:
    """Each input of the model, with the part of a sample that Keras feeds to it, by name or else by its place."""
    wanted, found = {tensor.name: tensor for tensor in network.inputs}, parts(given)
    if isinstance(given, dict):
        if any(isinstance(entry, dict | tuple) for entry in given.values()):
            return []  # which of them is whose is for Keras to say
        if not set(wanted) <= set(found):
            raise TrialCrashed(
                f"{_at(order, 'inputs')} has {listed(given)}, and the model's inputs are {listed(wanted)}",
                hint="give each input of the model by its name",
            )
        return [(tensor, f"inputs.{name}", found[name]) for name, tensor in wanted.items()]
    if len(found) != len(wanted):
        tensors = "one tensor" if len(found) == 1 else f"{len(found)} tensors"
        raise TrialCrashed(
            f"{_at(order, 'inputs')} is {tensors}, and the model has {len(wanted)} inputs: {listed(wanted)}",
            hint="give a mapping with each of them",
        )
    return [(tensor, f"inputs.{name}", found[name]) for tensor, name in zip(wanted.values(), found, strict=True)]


def _check_input(order: WorkOrder, tensor: Any, part: str, given: Any) -> None:
    shape, expected = given.shape[1:], tensor.shape[1:]
    if given.dtype == tf.string and tensor.dtype != "string":
        raise TrialCrashed(f"{_at(order, part)} is text, and the model takes numbers", hint="split it to tokens")
    if given.dtype != tf.string and tensor.dtype == "string":
        raise TrialCrashed(
            f"{_at(order, part)} has numbers, and the model takes text",
            hint="set dataset.tokenizer: {split: none}, so that text stays what it is",
        )
    if not _alike(shape, expected):
        batched = isinstance(order.dataset, PythonData) and _alike(shape[1:], expected)
        raise TrialCrashed(
            f"{_at(order, part)} has samples of {_shown(shape)}, and the model takes {_shown(expected)}",
            hint="it seems to give batches, and samples are wanted: return dataset.unbatch()"
            if batched
            else "make the shapes the same; sequence_length in both stands for the value under trial",
        )


def _check_batch_size(order: WorkOrder, network: keras.Model) -> None:
    """A model may be made for batches of one size, as one that keeps its state from batch to batch is."""
    fixed = next((tensor.shape[0] for tensor in network.inputs if tensor.shape[0] is not None), None)
    sizes = order.trial.sizes if isinstance(order.trial, Climb) else (order.trial.candidate.batch_size,)
    other = next((size for size in sizes if size != fixed), None)
    if fixed is not None and other is not None:
        raise TrialCrashed(
            f"{_model_key(order)}: the model takes batches of {fixed} only, not of {other}",
            hint=f"set search.batch_size: {fixed}",
        )


def _model_key(order: WorkOrder) -> str:
    return f"model.{order.model.kind}"


def _check_tokens(order: WorkOrder, network: keras.Model, tensor: Any, part: str) -> None:
    low, high = _range(order, part)
    for layer in network.layers:
        if not isinstance(layer, keras.layers.Embedding) or not _is_fed(layer, tensor):
            continue
        rows = layer.input_dim
        if high >= rows:
            raise TrialCrashed(
                f"{_at(order, part)} has tokens up to {high}, and the embedding {layer.name!r} has "
                f"{rows} rows, for tokens up to {rows - 1}",
                hint=f"make its input_dim {high + 1}, or keep tokens below {rows} ({_most_tokens(order)})",
            )
        if low < 0:
            raise TrialCrashed(
                f"{_at(order, part)} has tokens down to {low}, and the embedding {layer.name!r} takes them from 0 on",
                hint="tokens are numbers from 0 on; 0 is padding",
            )


def _most_tokens(order: WorkOrder) -> str:
    tokenizer = getattr(order.dataset, "tokenizer", None)
    learned = tokenizer is not None and tokenizer.vectorization is not None
    return f"dataset.tokenizer.{'TextVectorization.max_tokens' if learned else 'max'}"


def _is_fed(layer: Any, wanted: Any) -> bool:
    """Does the layer get this input of the model itself, and not what another layer made of it?"""
    tensors = [tensor for node in layer._inbound_nodes for tensor in node.input_tensors]
    return any(tensor is wanted for tensor in tensors)


def _check_target(order: WorkOrder, part: str, given: tf.TensorSpec, output: Any, loss: Any) -> None:
    name, shape = plain(loss), given.shape[1:]
    low, high = _range(order, part)
    if name == _SPARSE and not len(output):
        raise TrialCrashed(
            f"{_model_key(order)}: the model makes one number a sample, and the loss needs one for each class",
            hint="end it with a layer that has as many units as there are classes, or take another loss",
        )
    if name == _SPARSE:
        classes = output[-1]
        ignores = getattr(loss, "ignore_class", None) is not None
        _check_that_classes_are_whole(order, part)
        if classes is not None and not ignores and (high >= classes or low < 0):
            found = f"down to {low}" if low < 0 else f"up to {high}"
            raise TrialCrashed(
                f"{_label_at(order, part, low)} has classes {found}, and the model tells {classes} apart, from 0 on",
                hint="check the labels; the loss may have an ignore_class"
                if low < 0
                else "check the labels, or give the last layer more units",
            )
        output = output[:-1]
    elif name == "binarycrossentropy" and (high > 1 or low < 0):
        found = f"down to {low}" if low < 0 else f"up to {high}"
        raise TrialCrashed(
            f"{_label_at(order, part, low)} has labels {found}, and the loss is for labels 0 and 1",
            hint="check the labels, or take SparseCategoricalCrossentropy",
        )
    elif name not in _ELEMENTWISE:
        return
    if not _alike(shape, output):
        raise TrialCrashed(
            f"{_at(order, part)} has samples of {_shown(shape)}, and by the loss the model's output needs "
            f"{_shown(output)}",
            hint="change the shape of the targets, the last layer or the loss",
        )


def _check_weights(order: WorkOrder, given: Any, output: Any, loss: Any) -> None:
    """Where the loss is one number a sample, so are the weights. What else Keras brings to one shape is its affair."""
    one_number = len(output) == 1 and (plain(loss) in _ELEMENTWISE or plain(loss) == _SPARSE)
    if given is not None and one_number and not _alike(given.shape[1:], []):
        raise TrialCrashed(
            f"{_at(order, 'weights')} has weights of {_shown(given.shape[1:])} for samples whose loss is one number",
            hint="give one weight a sample",
        )


def _check_that_classes_are_whole(order: WorkOrder, part: str) -> None:
    fraction = None if order.scan is None else order.scan.fractions.get(part)
    if fraction is not None:
        raise TrialCrashed(
            f"{_label_at(order, part)} has {fraction:g} among its classes, which are whole numbers from 0 on",
            hint="check the labels; for targets that are no classes take another loss, such as mean_squared_error",
        )


def _label_at(order: WorkOrder, part: str, low: int = 0) -> str:
    """Where the label stands that no label can be: the smallest if that is below 0, or else the largest."""
    smallest, largest = ("", "") if order.scan is None else order.scan.places.get(part, ("", ""))
    return _at(order, part, smallest if low < 0 else largest)


def _range(order: WorkOrder, part: str) -> tuple[int, int]:
    """The smallest and the largest whole number of this part; 0 and 0 where it holds none, which suits anything."""
    if order.scan is not None:
        return order.scan.ranges.get(part, (0, 0))
    side, _, name = part.partition(".")
    tensors = getattr(order.dataset, side, None) if isinstance(order.dataset, SyntheticData) else None
    tensor = tensors.get(name) if isinstance(tensors, dict) else tensors
    if not isinstance(tensor, TensorSpec) or "int" not in tensor.dtype or tensor.max is None:
        return 0, 0
    return 0, int(tensor.max) - 1


def _alike(shape: Any, expected: Any) -> bool:
    """Are they the same where both are known? As for Keras, a last dimension of 1 may be there or not."""
    shape, expected = list(shape), list(expected)
    for one, other in ((shape, expected), (expected, shape)):
        if len(one) == len(other) + 1 and one[-1] == 1:
            one.pop()
    return len(shape) == len(expected) and all(
        size is None or wanted is None or size == wanted for size, wanted in zip(shape, expected, strict=True)
    )


def given_shapes(order: WorkOrder, inputs: Any, targets: Any) -> str:
    """What a step of the user's own is given, in terms of the spec."""
    return f"{_at(order, 'inputs')} has {_described(inputs)}, and the targets have {_described(targets)}"


def _shown(shape: Any) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _described(specs: Any) -> str:
    """The shapes of samples, by their names if they have any."""
    found = parts(specs)
    if "" in found:
        return f"samples of {_shown(specs.shape[1:])}"
    return " and ".join(f"{name!r} of {_shown(spec.shape[1:])}" for name, spec in found.items())
