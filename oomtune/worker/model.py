"""Building and compiling the model that a spec describes, for one candidate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from oomtune.domain import Application, Candidate, ClassConfig, ModelSpec, TrainingSpec, WorkOrder
from oomtune.errors import TrialCrashed
from oomtune.optimizing import accumulating
from oomtune.remat import NONE, rematerialise
from oomtune.worker import cells, code, layers, saved
from oomtune.worker.layers import first_words, with_length

_OPEN = "build it with an input length of None to train on batches of several lengths"


def build(order: WorkOrder, candidate: Candidate, *, any_length: bool = False) -> keras.Model:
    """The model under the candidate's precision policy, compiled as the spec says; with `any_length` one that takes
    samples of other lengths too."""
    keras.config.set_dtype_policy(candidate.precision)
    model = made(order.model, order.folder, candidate)
    if order.model.gru_for_lstm:
        model = cells.with_gru(model)
    if any_length:
        model = _opened(model, candidate.sequence_length)
    _compile(model, order, candidate)
    if candidate.remat != NONE:
        rematerialise(model, candidate.remat)
    return model


def _opened(model: keras.Model, length: int | None) -> keras.Model:
    """The same model with its length left open, where it was fixed."""
    inputs = getattr(model, "inputs", None)
    if not inputs or all(len(tensor.shape) < 2 or tensor.shape[1] != length for tensor in inputs):
        return model
    if model.compiled:
        raise TrialCrashed(f"the model comes compiled for {length} steps a sample", hint=_OPEN)
    opened = [
        keras.Input(
            (None, *tensor.shape[2:]) if tensor.shape[1:2] == (length,) else tensor.shape[1:],
            dtype=tensor.dtype,
            name=tensor.name,
        )
        for tensor in inputs
    ]
    try:
        return keras.models.clone_model(model, input_tensors=opened if len(opened) > 1 else opened[0])
    except (TypeError, ValueError) as error:
        raise TrialCrashed(f"the model takes {length} steps a sample only: {first_words(error)}", hint=_OPEN) from None


def made(spec: ModelSpec, folder: str, candidate: Candidate) -> keras.Model:
    """The model as the spec describes it, under the policy that is set; compiled only if it comes so."""
    if spec.builder is not None:
        return _from_builder(spec, folder, candidate)
    if spec.keras_file is not None:
        return saved.build(spec, folder, candidate)
    if spec.application is not None:
        return _from_application(spec.application, folder, candidate)
    return layers.build(spec.layers, folder, candidate)


def _from_application(application: Application, folder: str, candidate: Candidate) -> keras.Model:
    maker = getattr(keras.applications, application.name)
    arguments = with_length(application.args, candidate)
    # Unless it is told otherwise Keras would download weights; what they are changes no memory.
    weights = arguments.get("weights")
    try:
        return maker(**arguments | {"weights": None if weights is None else str(Path(folder) / weights)})
    except (TypeError, ValueError) as error:
        raise TrialCrashed(
            f"model.application.args: {first_words(error)}", hint=f"see keras.applications.{application.name}"
        ) from None


def _from_builder(spec: ModelSpec, folder: str, candidate: Candidate) -> keras.Model:
    builder = code.load(spec.builder or "", folder, "model.builder")
    model = builder(**code.arguments_for(builder, spec.args, candidate, spec.builder or ""))
    if not isinstance(model, keras.Model):
        raise TrialCrashed(
            f"model.builder: {spec.builder} returned {type(model).__name__}, not a keras.Model",
            hint="return the model from the builder",
        )
    return model


def _compile(model: keras.Model, order: WorkOrder, candidate: Candidate) -> None:
    training = order.training
    if model.compiled and training.loss is None:
        key = "training.effective_batch_size" if training.accumulation_steps(candidate.batch_size) > 1 else ""
        key = "search.optimizer" if candidate.optimizer is not None else key
        if key:
            raise TrialCrashed(
                f"{key} can't be kept: the model comes compiled with its own optimizer",
                hint=f"set training.loss in the spec, so that it is compiled anew, or leave {key} out",
            )
        return
    if training.loss is None:
        raise TrialCrashed("training.loss is not set, and the model does not come compiled", hint="set training.loss")
    with warnings.catch_warnings():
        # Asking for XLA where a layer can't have it is how to learn what Keras would choose on a GPU.
        warnings.filterwarnings("ignore", message="Model doesn't support `jit_compile=True`")
        model.compile(
            optimizer=_optimizer(training, candidate),
            loss=_named("training.loss", keras.losses.get, training.loss),
            metrics=[_named("training.metrics", keras.metrics.get, metric) for metric in training.metrics],
            jit_compile=_jit_compile(order),
            run_eagerly=training.run_eagerly,
        )


def _jit_compile(order: WorkOrder) -> bool | str:
    if order.training.jit_compile is not None:
        return order.training.jit_compile
    return True if order.device.stands_in_for is not None and not order.training.run_eagerly else "auto"


def _optimizer(training: TrainingSpec, candidate: Candidate) -> Any:
    key = "training.optimizer" if candidate.optimizer is None else "search.optimizer"
    optimizer = _named(key, keras.optimizers.get, training.optimizer_of(candidate))
    return accumulating(optimizer, training.accumulation_steps(candidate.batch_size))


def bring_update_near(model: keras.Model) -> None:
    """Let the second step from now be one in which accumulated gradients are applied: it takes more memory than those
    that only add to them, and may be further off than a trial is long."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if steps:
        optimizer._iterations.assign(steps - 2)


def _named(key: str, get: Callable[[Any], Any], wanted: str | ClassConfig) -> Any:
    """A Keras object by name; metric names such as `accuracy` stay names, Keras chooses among them by the loss."""
    if isinstance(wanted, str):
        if get is keras.metrics.get:
            return wanted
        identifier: Any = wanted
    else:
        identifier = {"class_name": wanted.class_name, "config": wanted.config}
    try:
        return get(identifier)
    except (TypeError, ValueError) as error:
        raise TrialCrashed(f"{key}: {first_words(error)}", hint="use a name that Keras knows") from None
