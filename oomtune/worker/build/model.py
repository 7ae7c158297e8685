"""Building the model that a spec describes, for one candidate."""

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
    ModelVariant,
    RematMode,
    Script,
    SyntheticData,
    TrainStep,
    WorkOrder,
)
from oomtune.errors import TrialCrashed
from oomtune.keras.remat import rematerialise
from oomtune.worker.build import layers
from oomtune.worker.build import length_use as length
from oomtune.worker.build import recurrent_cells as cells
from oomtune.worker.build import saved_model as saved
from oomtune.worker.build import user_code as code
from oomtune.worker.build.blueprint import Blueprint
from oomtune.worker.build.compiling import compile_as_told
from oomtune.worker.build.layers import first_words, with_length
from oomtune.worker.data import sources

_OPEN = "build it with an input length of None to train on batches of several lengths"


def build(order: WorkOrder, candidate: Candidate, *, any_length: bool = False) -> keras.Model:
    """The model under the candidate's precision policy, compiled as the spec says; with `any_length` one that takes
    samples of other lengths too."""
    floatx = keras.config.floatx()
    if isinstance(order.model, Builder):
        code.load(order.model.function, order.folder, "model.builder")
    length.check(order)
    # After the import: whatever the module has set, this trial is the candidate's.
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(candidate.precision)
    blueprint = Blueprint(
        spec=order.model,
        folder=order.folder,
        candidate=candidate,
        sequences=_sequences(order),
        compiled_anew=order.training.loss is not None,
    )
    model = made(blueprint)
    _check_precision(model, candidate.precision)
    if order.variant is ModelVariant.GRU_FOR_LSTM:
        model = cells.with_gru(model)
    if any_length:
        model = _opened(model, candidate.sequence_length)
    compile_as_told(model, order, candidate)
    if candidate.remat is not RematMode.NONE:
        rematerialise(model, str(candidate.remat))
    return model


def _check_precision(model: keras.Model, wanted: str) -> None:
    """Refuse a model that has set a policy of its own. Single layers may be kept apart, as outputs in float32 are."""
    leaves = [layer for layer in model._flatten_layers(include_self=False) if not layer._layers]
    names = [layer.dtype_policy.name for layer in leaves if not isinstance(layer, keras.layers.InputLayer)]
    # What is neither of the precisions that are searched is the model's own affair.
    policies = Counter(name for name in names if "float" in name and name != "float64")
    ((main, _),) = policies.most_common(1) or [(wanted, 0)]
    if main != wanted and (wanted == "float32" or wanted not in policies):
        raise TrialCrashed(
            f"the model's layers are under {main}, and this trial is to be under {wanted}",
            hint=f"set search.precision: [{main}], or let the model take the policy that is set when it is built",
        )


def _sequences(order: WorkOrder) -> frozenset[str] | None:
    """The inputs whose samples have the length under trial, by the spec or by what was read; None when none is said
    to have."""
    if isinstance(order.dataset, SyntheticData):
        inputs = sources.by_name(order.dataset.inputs)
        names = [name for name, tensor in inputs.items() if "sequence_length" in tensor.shape]
    else:
        known = () if order.scan is None else order.scan.sequences
        names = [part.removeprefix("inputs.") for part in known if part.startswith("inputs.")]
    return frozenset(names) or None


def _opened(model: keras.Model, length: int | None) -> keras.Model:
    """The same model with its length left open, where it was fixed."""
    inputs = getattr(model, "inputs", None)
    if not inputs or all(len(tensor.shape) < 2 or tensor.shape[1] != length for tensor in inputs):
        return model
    if model.compiled:
        raise TrialCrashed(f"the model comes compiled for {length} steps a sample", hint=_OPEN)
    # Several inputs stay what they were given as, a list or a dict. A stack of layers has one.
    given = inputs[0] if isinstance(model, keras.Sequential) else model.input
    try:
        opened = keras.tree.map_structure(lambda tensor: _open_input(tensor, length), given)
        return keras.models.clone_model(model, input_tensors=opened)
    except (TypeError, ValueError) as error:
        raise TrialCrashed(f"the model takes {length} steps a sample only: {first_words(error)}", hint=_OPEN) from None


def _open_input(tensor: Any, length: int | None) -> Any:
    shape = (None, *tensor.shape[2:]) if tensor.shape[1:2] == (length,) else tensor.shape[1:]
    return keras.Input(shape, dtype=tensor.dtype, name=tensor.name)


def made(blueprint: Blueprint) -> keras.Model:
    """The model as the spec describes it, under the policy that is set; compiled only if it comes so."""
    match blueprint.spec:
        case Builder() as builder:
            return _from_builder(builder, blueprint)
        case KerasFile() as file:
            return saved.build(file, blueprint)
        case Application() as application:
            return _from_application(application, blueprint)
        case Layers(layers=listed):
            return layers.build(listed, blueprint.folder, blueprint.candidate)
        case TrainStep() | Script():
            raise ValueError("code that trains by itself also builds its model")


def _from_application(application: Application, blueprint: Blueprint) -> keras.Model:
    maker = getattr(keras.applications, application.name)
    arguments = with_length(application.args, blueprint.candidate)
    # Unless it is told otherwise Keras would download weights; what they are changes no memory.
    weights = arguments.get("weights")
    try:
        return maker(**arguments | {"weights": None if weights is None else str(Path(blueprint.folder) / weights)})
    except (TypeError, ValueError) as error:
        raise TrialCrashed(
            f"model.application.args: {first_words(error)}", hint=f"see keras.applications.{application.name}"
        ) from None


def _from_builder(spec: Builder, blueprint: Blueprint) -> keras.Model:
    name = spec.function
    builder = code.load(name, blueprint.folder, "model.builder")
    arguments = with_length(spec.args, blueprint.candidate)
    model = builder(**code.arguments_for(builder, arguments, blueprint.candidate, name))
    if not isinstance(model, keras.Model):
        raise TrialCrashed(
            f"model.builder: {name} returned {type(model).__name__}, not a keras.Model",
            hint="return the model from the builder",
        )
    return model


def bring_update_near(model: keras.Model) -> None:
    """Let the second step from now be one in which accumulated gradients are applied: it takes more memory than those
    that only add to them, and may be further off than a trial is long."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if steps:
        optimizer._iterations.assign(steps - 2)
