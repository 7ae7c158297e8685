"""Build and compile the model of a spec for one candidate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import keras

from oomtune.domain import (
    Application,
    Builder,
    Candidate,
    KerasFile,
    Layers,
    ModelSpec,
    ModelVariant,
    RematMode,
    Script,
    SyntheticData,
    TrainStep,
    WorkOrder,
    by_name,
)
from oomtune.errors import TrialCrashed
from oomtune.keras.remat import rematerialise
from oomtune.worker.build import layers, saved_model, user_code
from oomtune.worker.build.compiling import compile_model
from oomtune.worker.build.layers import first_line, with_length

_LENGTH = "sequence_length"
_OPEN = "build it with an input length of None to train on batches of several lengths"
_NO_GRU = "can't replace the LSTM by a GRU"
_LSTM_ONLY_ARGUMENTS = ("unit_forget_bias",)


def build(order: WorkOrder, candidate: Candidate, *, any_length: bool = False) -> keras.Model:
    """Return the candidate's compiled model. With `any_length` it also takes samples of other lengths."""
    floatx = keras.config.floatx()
    if isinstance(order.model, Builder):
        user_code.load(order.model.function, order.folder, "model.builder")
    refuse_unused_length(order)
    # Set these after importing the user's module, which may set policies itself.
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(candidate.precision)
    model = make(
        order.model,
        order.folder,
        candidate,
        sequences=_sequence_inputs(order),
        compiled_anew=order.training.loss is not None,
    )
    _check_precision(model, candidate.precision)
    if order.variant is ModelVariant.GRU_FOR_LSTM:
        model = _with_gru(model)
    if any_length:
        model = _with_open_length(model, candidate.sequence_length)
    compile_model(model, order, candidate)
    if candidate.remat is not RematMode.NONE:
        rematerialise(model, str(candidate.remat))
    return model


def make(
    spec: ModelSpec,
    folder: str,
    candidate: Candidate,
    *,
    sequences: frozenset[str] | None = None,
    compiled_anew: bool = False,
) -> keras.Model:
    """Return the model under the current dtype policy. It is compiled only if it comes compiled.

    `sequences` names the inputs whose samples have the length under trial (the empty name for a single input), None if
    that is unknown. With `compiled_anew` a saved model's own loss, optimizer and metrics are left out.
    """
    match spec:
        case Builder():
            return _from_builder(spec, folder, candidate)
        case KerasFile():
            return saved_model.build(spec, folder, candidate, sequences=sequences, compiled_anew=compiled_anew)
        case Application():
            return _from_application(spec, folder, candidate)
        case Layers():
            return layers.build(spec.layers, folder, candidate)
        case TrainStep() | Script():
            raise ValueError("code that trains by itself also builds its model")


def _from_application(application: Application, folder: str, candidate: Candidate) -> keras.Model:
    function = getattr(keras.applications, application.name)
    arguments = with_length(application.args, candidate)
    # Keras downloads weights by default. Their values don't change the memory that training takes.
    weights = arguments.get("weights")
    try:
        return function(**arguments | {"weights": None if weights is None else str(Path(folder) / weights)})
    except (TypeError, ValueError) as error:
        raise TrialCrashed(
            f"model.application.args: {first_line(error)}", hint=f"see keras.applications.{application.name}"
        ) from None


def _from_builder(spec: Builder, folder: str, candidate: Candidate) -> keras.Model:
    name = spec.function
    builder = user_code.load(name, folder, "model.builder")
    model = builder(**user_code.arguments_for(builder, with_length(spec.args, candidate), candidate, name))
    if not isinstance(model, keras.Model):
        raise TrialCrashed(
            f"model.builder: {name} returned {type(model).__name__}, not a keras.Model",
            hint="return the model from the builder",
        )
    return model


def refuse_unused_length(order: WorkOrder) -> None:
    """Raise `TrialCrashed` if lengths are searched but neither the data nor the model takes one.

    Every length would give the same result, so the answer would mean nothing.
    """
    if order.trial.candidate.sequence_length is None or _data_takes_length(order) or _model_takes_length(order):
        return
    raise TrialCrashed(
        f"search.{_LENGTH} is set, but neither the model nor the data takes a length, so it has no effect",
        hint=f"write {_LENGTH} in the shapes, let the function that makes the model take it, or remove the entry",
    )


def _data_takes_length(order: WorkOrder) -> bool:
    data = order.dataset
    if not isinstance(data, SyntheticData):
        return order.scan is not None and bool(order.scan.sequences)
    tensors = [tensor for side in (data.inputs, data.targets) for tensor in by_name(side).values()]
    return any(_LENGTH in tensor.shape for tensor in tensors)


def _model_takes_length(order: WorkOrder) -> bool:
    match order.model:
        case Builder(function=name, args=args) | TrainStep(factory=name, args=args):
            function = user_code.load(name, order.folder, f"model.{order.model.kind}")
            return user_code.takes_length(function) or _mentions_length(args)
        case Application(args=args):
            return _mentions_length(args)
        case Layers(layers=entries):
            return _mentions_length([layer.config for layer in entries])
    return False


def _mentions_length(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_mentions_length, value.values() if isinstance(value, dict) else value))
    return bool(value == _LENGTH)


def _sequence_inputs(order: WorkOrder) -> frozenset[str] | None:
    """Return the names of the inputs that have the length under trial, None if no input is known to have it."""
    if isinstance(order.dataset, SyntheticData):
        inputs = by_name(order.dataset.inputs)
        names = [name for name, tensor in inputs.items() if _LENGTH in tensor.shape]
    else:
        sequences = () if order.scan is None else order.scan.sequences
        names = [part.removeprefix("inputs.") for part in sequences if part.startswith("inputs.")]
    return frozenset(names) or None


def _check_precision(model: keras.Model, precision: str) -> None:
    """Raise `TrialCrashed` if the model sets its own policy. Single layers may differ, such as outputs in float32."""
    leaves = [layer for layer in model._flatten_layers(include_self=False) if not layer._layers]
    names = [layer.dtype_policy.name for layer in leaves if not isinstance(layer, keras.layers.InputLayer)]
    # Layers under other policies, such as integers or float64, are the model's own choice.
    policies = Counter(name for name in names if "float" in name and name != "float64")
    ((main, _),) = policies.most_common(1) or [(precision, 0)]
    if main != precision and (precision == "float32" or precision not in policies):
        raise TrialCrashed(
            f"the model's layers use the policy {main}, but this trial needs {precision}",
            hint=f"set search.precision: [{main}], or build the model under the policy that is set",
        )


def _with_open_length(model: keras.Model, length: int | None) -> keras.Model:
    """Return the model with its input length left open, if it was fixed."""
    inputs = getattr(model, "inputs", None)
    if not inputs or all(len(tensor.shape) < 2 or tensor.shape[1] != length for tensor in inputs):
        return model
    if model.compiled:
        raise TrialCrashed(f"the model comes compiled for {length} steps per sample", hint=_OPEN)
    # Several inputs keep their structure, a list or a dict. A Sequential has only one.
    structure = inputs[0] if isinstance(model, keras.Sequential) else model.input
    try:
        opened = keras.tree.map_structure(lambda tensor: _open_input(tensor, length), structure)
        return keras.models.clone_model(model, input_tensors=opened)
    except (TypeError, ValueError) as error:
        raise TrialCrashed(f"the model only takes {length} steps per sample: {first_line(error)}", hint=_OPEN) from None


def _open_input(tensor: Any, length: int | None) -> Any:
    shape = (None, *tensor.shape[2:]) if tensor.shape[1:2] == (length,) else tensor.shape[1:]
    return keras.Input(shape, dtype=tensor.dtype, name=tensor.name)


def _with_gru(model: keras.Model) -> keras.Model:
    """Return a copy of the model with GRUs for LSTMs. Raise `TrialCrashed` if one of them can't be replaced."""
    if model.compiled:
        raise TrialCrashed(f"{_NO_GRU}: the model comes compiled, and its copy would not be")
    if not isinstance(model, keras.Sequential) and not getattr(model, "inputs", None):
        raise TrialCrashed(f"{_NO_GRU}: the model is subclassed, so its layers can't be swapped")
    has_inner_models = any(isinstance(layer, keras.Model) for layer in model.layers)
    try:
        copy = keras.models.clone_model(model, clone_function=_clone, recursive=has_inner_models)
    except (TypeError, ValueError) as error:
        raise TrialCrashed(f"{_NO_GRU}: {first_line(error)}") from None
    for layer in copy._flatten_layers():
        if isinstance(layer, keras.layers.LSTM):
            raise TrialCrashed(f"{_NO_GRU}: {layer.name} is inside another layer or is a subclass of LSTM")
    return copy


def _clone(layer: keras.layers.Layer) -> keras.layers.Layer:
    if type(layer) is keras.layers.LSTM:
        return _gru(layer)
    if isinstance(layer, keras.layers.Bidirectional) and type(layer.forward_layer) is keras.layers.LSTM:
        # The configuration names the backward layer only if it was not derived from the forward layer.
        has_own_backward = "backward_layer" in layer.get_config()
        return keras.layers.Bidirectional(
            _gru(layer.forward_layer),
            backward_layer=_gru(layer.backward_layer) if has_own_backward else None,
            merge_mode=layer.merge_mode,
            name=layer.name,
        )
    return type(layer).from_config(layer.get_config())


def _gru(lstm: keras.layers.LSTM) -> keras.layers.GRU:
    if lstm.return_state:
        raise TrialCrashed(f"{_NO_GRU}: the model uses both states of the LSTM, and a GRU has only one")
    config = {key: value for key, value in lstm.get_config().items() if key not in _LSTM_ONLY_ARGUMENTS}
    return keras.layers.GRU.from_config(config)


def bring_update_near(model: keras.Model) -> None:
    """Make the second step from now apply the accumulated gradients.

    That step takes more memory than the steps that only accumulate, and may otherwise lie beyond the end of the trial.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if steps:
        optimizer._iterations.assign(steps - 2)
