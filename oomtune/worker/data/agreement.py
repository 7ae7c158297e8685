"""Check before the first step that the data suits the model, and report mismatches in terms of the spec."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from weakref import WeakSet

import keras
import tensorflow as tf

from oomtune.domain import Climb, PythonData, SyntheticData, TensorSpec, TokenizedData, WorkOrder, paths_by_part
from oomtune.errors import TrialCrashed
from oomtune.keras.private_keras import compute_output_spec
from oomtune.worker.build.compiling import check_outputs, loss_name, output_and_loss_of_targets, quoted
from oomtune.worker.nesting import parts
from oomtune.worker.process.exceptions import reason

_ELEMENTWISE = ("meansquarederror", "meanabsoluteerror", "binarycrossentropy", "categoricalcrossentropy", "huber")
_SPARSE = "sparsecategoricalcrossentropy"
# Models without visible inputs that were already called: a climb checks the same model for each of its sizes.
_called: WeakSet[keras.Model] = WeakSet()


def check(order: WorkOrder, model: keras.Model, batches: tf.data.Dataset) -> None:
    """Raise `TrialCrashed` if the model can't be trained on these batches. Check only what Keras exposes."""
    inputs, targets, *weights = batches.element_spec
    if model.built and getattr(model, "inputs", None):
        pairs = _pair_inputs(order, model, inputs)
        _check_batch_size(order, model)
        for tensor, part, data in pairs:
            _check_input(order, tensor, part, data)
            _check_tokens(order, model, tensor, part)
        outputs = getattr(model, "_outputs_struct", model.outputs)
    elif order.training.run_eagerly or model in _called:
        return
    else:
        _called.add(model)
        outputs = _outputs_for(order, model, inputs)
    check_outputs(order.training, model, outputs, targets, _source_of(order, "targets"))
    for name, (output, loss) in output_and_loss_of_targets(model, outputs, targets).items():
        target = parts(targets)[name]
        if isinstance(target, tf.TensorSpec):
            _check_target(order, f"targets.{name}", target, output.shape[1:], loss)
            for weight in weights:
                _check_weights(order, parts(weight).get(name), output.shape[1:], loss)


def describe_shapes(order: WorkOrder, inputs: Any, targets: Any) -> str:
    """Describe the arguments of the user's own step, for a message about its failure."""
    return f"{_source_of(order, 'inputs')} has {_describe(inputs)}, and the targets have {_describe(targets)}"


# --- inputs


def _outputs_for(order: WorkOrder, model: keras.Model, inputs: Any) -> Any:
    """Call a model without visible inputs symbolically, as `fit` does. Return None if the call needs real numbers."""
    symbols = tf.nest.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about how the model is built; real problems also raise
            return compute_output_spec(model, symbols, training=False)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None  # training raises a bug in the model again, with the user's own traceback
    except tf.errors.OperatorNotAllowedInGraphError as error:
        raise TrialCrashed(
            f"{_model_key(order)}: the model's call can't be compiled to a graph: {reason(error).partition('. ')[0]}",
            hint="use tf.cond or tf.while_loop, put @tf.function before call, or set training.run_eagerly: true",
        ) from error
    except (KeyError, TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise TrialCrashed(
            f"{_source_of(order, 'inputs')} has {_describe(inputs)}, but the model can't be called with it: "
            f"{type(error).__name__}: {reason(error)}",
            hint="change the data or the model so that their shapes match",
        ) from error


def _pair_inputs(order: WorkOrder, model: keras.Model, inputs: Any) -> list[tuple[Any, str, Any]]:
    """Return each input of the model with the part of the data that Keras feeds it: by name, or else by position."""
    tensors, data = {tensor.name: tensor for tensor in model.inputs}, parts(inputs)
    if isinstance(inputs, dict):
        if any(isinstance(entry, dict | tuple) for entry in inputs.values()):
            return []  # only Keras knows how nested inputs are matched
        if not set(tensors) <= set(data):
            raise TrialCrashed(
                f"{_source_of(order, 'inputs')} has {quoted(inputs)}, but the model's inputs are {quoted(tensors)}",
                hint="give each input of the model by its name",
            )
        return [(tensor, f"inputs.{name}", data[name]) for name, tensor in tensors.items()]
    if len(data) != len(tensors):
        count = "one tensor" if len(data) == 1 else f"{len(data)} tensors"
        raise TrialCrashed(
            f"{_source_of(order, 'inputs')} is {count}, but the model has {len(tensors)} inputs: {quoted(tensors)}",
            hint="give a mapping with each of them",
        )
    return [(tensor, f"inputs.{name}", data[name]) for tensor, name in zip(tensors.values(), data, strict=True)]


def _check_batch_size(order: WorkOrder, model: keras.Model) -> None:
    """Raise `TrialCrashed` if the model is built for another batch size, as a stateful model is."""
    fixed = next((tensor.shape[0] for tensor in model.inputs if tensor.shape[0] is not None), None)
    sizes = order.trial.sizes if isinstance(order.trial, Climb) else (order.trial.candidate.batch_size,)
    other = next((size for size in sizes if size != fixed), None)
    if fixed is not None and other is not None:
        raise TrialCrashed(
            f"{_model_key(order)}: the model only takes batches of {fixed}, not {other}",
            hint=f"set search.batch_size: {fixed}",
        )


def _check_input(order: WorkOrder, tensor: Any, part: str, data: Any) -> None:
    shape, expected = data.shape[1:], tensor.shape[1:]
    if data.dtype == tf.string and tensor.dtype != "string":
        raise TrialCrashed(
            f"{_source_of(order, part)} is text, but the model takes numbers", hint="split the text into tokens"
        )
    if data.dtype != tf.string and tensor.dtype == "string":
        raise TrialCrashed(
            f"{_source_of(order, part)} has numbers, but the model takes text",
            hint="set dataset.tokenizer: {split: none} to keep the text as it is",
        )
    if not _same_shape(shape, expected):
        is_batched = isinstance(order.dataset, PythonData) and _same_shape(shape[1:], expected)
        raise TrialCrashed(
            f"{_source_of(order, part)} has samples of shape {_shape(shape)}, but the model takes {_shape(expected)}",
            hint="the data seems to be batched already; return dataset.unbatch()"
            if is_batched
            else "make the shapes equal; sequence_length in both stands for the value under trial",
        )


def _check_tokens(order: WorkOrder, model: keras.Model, tensor: Any, part: str) -> None:
    low, high = _value_range(order, part)
    for layer in model.layers:
        if not isinstance(layer, keras.layers.Embedding) or not _takes_directly(layer, tensor):
            continue
        rows = layer.input_dim
        if high >= rows:
            data = order.dataset
            learnt = isinstance(data, TokenizedData) and data.tokenizer.vectorization is not None
            setting = f"dataset.tokenizer.{'TextVectorization.max_tokens' if learnt else 'max'}"
            raise TrialCrashed(
                f"{_source_of(order, part)} has tokens up to {high}, but the embedding {layer.name!r} has only "
                f"{rows} rows, for tokens 0 to {rows - 1}",
                hint=f"set its input_dim to {high + 1}, or keep tokens below {rows} ({setting})",
            )
        if low < 0:
            raise TrialCrashed(
                f"{_source_of(order, part)} has tokens down to {low}, but the embedding {layer.name!r} only takes "
                "tokens from 0 up",
                hint="number tokens from 0 up; 0 is padding",
            )


def _takes_directly(layer: Any, model_input: Any) -> bool:
    """Return whether the layer takes the model's input itself, not the output of another layer."""
    return any(tensor is model_input for node in layer._inbound_nodes for tensor in node.input_tensors)


# --- targets and weights


def _check_target(order: WorkOrder, part: str, target: tf.TensorSpec, output: Any, loss: Any) -> None:
    name = loss_name(loss)
    low, high = _value_range(order, part)
    if name == _SPARSE:
        _check_classes(order, part, output, loss)
        output = output[:-1]
    elif name == "binarycrossentropy" and (high > 1 or low < 0):
        raise TrialCrashed(
            f"{_label_source(order, part, low)} has labels {_extent(low, high)}, but the loss expects labels 0 and 1",
            hint="check the labels, or use SparseCategoricalCrossentropy",
        )
    elif name not in _ELEMENTWISE:
        return
    if not _same_shape(target.shape[1:], output):
        raise TrialCrashed(
            f"{_source_of(order, part)} has samples of shape {_shape(target.shape[1:])}, but the loss and the model's "
            f"output need {_shape(output)}",
            hint="change the shape of the targets, the last layer or the loss",
        )


def _check_classes(order: WorkOrder, part: str, output: Any, loss: Any) -> None:
    if not len(output):
        raise TrialCrashed(
            f"{_model_key(order)}: the model outputs one number per sample, but the loss needs one for each class",
            hint="end it with a layer that has one unit per class, or use another loss",
        )
    fraction = None if order.scan is None else order.scan.fractions.get(part)
    if fraction is not None:
        raise TrialCrashed(
            f"{_label_source(order, part)} has the class {fraction:g}, but classes are whole numbers from 0 up",
            hint="check the labels; if the targets are not classes use another loss, such as mean_squared_error",
        )
    low, high = _value_range(order, part)
    classes = output[-1]
    ignores_a_class = getattr(loss, "ignore_class", None) is not None
    if classes is not None and not ignores_a_class and (high >= classes or low < 0):
        raise TrialCrashed(
            f"{_label_source(order, part, low)} has classes {_extent(low, high)}, but the model has {classes} classes, "
            f"0 to {classes - 1}",
            hint="check the labels; the loss may have an ignore_class"
            if low < 0
            else "check the labels, or give the last layer more units",
        )


def _extent(low: int, high: int) -> str:
    return f"down to {low}" if low < 0 else f"up to {high}"


def _check_weights(order: WorkOrder, weights: Any, output: Any, loss: Any) -> None:
    """Check the weights if the loss is one number per sample. Keras reshapes all others."""
    has_one_loss = len(output) == 1 and loss_name(loss) in (*_ELEMENTWISE, _SPARSE)
    if weights is not None and has_one_loss and not _same_shape(weights.shape[1:], []):
        raise TrialCrashed(
            f"{_source_of(order, 'weights')} has weights of shape {_shape(weights.shape[1:])}, but the loss is one "
            "number per sample",
            hint="give one weight per sample",
        )


# --- where data comes from, and its shapes and values


def _source_of(order: WorkOrder, part: str, place: str = "") -> str:
    """Return the file and the entry of the spec that a part of the samples comes from.

    `place` is the file and line, if they are known.
    """
    assert order.dataset is not None, "only the spec's data is checked"
    side, _, name = part.partition(".")
    kind = order.dataset.kind
    key = f"dataset.{kind}" if kind in ("python", "images", "text") else f"dataset.{kind}.{side}"
    paths = paths_by_part(order.dataset)
    files = paths.get(f"{side}.{name}") or paths.get("")
    where = f"{place or Path(order.folder, files[0])}: " if files else ""
    label = f"{side}[{name}]" if name.isdigit() else repr(name)
    return f"{where}{key}{f' ({label})' if name else ''}"


def _label_source(order: WorkOrder, part: str, low: int = 0) -> str:
    """Return the source of the wrong label: of the smallest if it is below 0, else of the largest."""
    smallest, largest = ("", "") if order.scan is None else order.scan.places.get(part, ("", ""))
    return _source_of(order, part, smallest if low < 0 else largest)


def _model_key(order: WorkOrder) -> str:
    return f"model.{order.model.kind}"


def _value_range(order: WorkOrder, part: str) -> tuple[int, int]:
    """Return the smallest and largest whole number of the part, or (0, 0), which suits any model."""
    if order.scan is not None:
        return order.scan.ranges.get(part, (0, 0))
    side, _, name = part.partition(".")
    tensors = getattr(order.dataset, side, None) if isinstance(order.dataset, SyntheticData) else None
    tensor = tensors.get(name) if isinstance(tensors, dict) else tensors
    if not isinstance(tensor, TensorSpec) or "int" not in tensor.dtype or tensor.max is None:
        return 0, 0
    return 0, int(tensor.max) - 1


def _same_shape(shape: Any, expected: Any) -> bool:
    """Return whether two shapes agree where both are known. As in Keras, a last dimension of 1 is optional."""
    shape, expected = list(shape), list(expected)
    for one, other in ((shape, expected), (expected, shape)):
        if len(one) == len(other) + 1 and one[-1] == 1:
            one.pop()
    return len(shape) == len(expected) and all(
        size is None or other is None or size == other for size, other in zip(shape, expected, strict=True)
    )


def _shape(shape: Any) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _describe(specs: Any) -> str:
    """Describe the shapes of samples, by name if they have names."""
    named = parts(specs)
    if "" in named:
        return f"samples of shape {_shape(specs.shape[1:])}"
    return " and ".join(f"{name!r} of shape {_shape(spec.shape[1:])}" for name, spec in named.items())
