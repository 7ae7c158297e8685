"""Building and compiling the model that a spec describes, for one candidate."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from oomtune.domain import Application, Candidate, ClassConfig, ModelSpec, TrainingSpec, WorkOrder
from oomtune.errors import TrialCrashed
from oomtune.optimizing import accumulating
from oomtune.remat import NONE, rematerialise
from oomtune.worker import cells, code, layers, saved, sources
from oomtune.worker.layers import first_words, with_length

_OPEN = "build it with an input length of None to train on batches of several lengths"


def build(order: WorkOrder, candidate: Candidate, *, any_length: bool = False) -> keras.Model:
    """The model under the candidate's precision policy, compiled as the spec says; with `any_length` one that takes
    samples of other lengths too."""
    floatx = keras.config.floatx()
    if order.model.builder is not None:
        code.load(order.model.builder, order.folder, "model.builder")
    # After the import: whatever the module has set, this trial is the candidate's.
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(candidate.precision)
    anew = order.training.loss is not None
    model = made(order.model, order.folder, candidate, sequences=_sequences(order), compiled_anew=anew)
    _check_precision(model, candidate.precision)
    if order.model.gru_for_lstm:
        model = cells.with_gru(model)
    if any_length:
        model = _opened(model, candidate.sequence_length)
    _compile(model, order, candidate)
    if candidate.remat != NONE:
        rematerialise(model, candidate.remat)
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
    if order.dataset.synthetic is not None:
        inputs = sources.by_name(order.dataset.synthetic.inputs)
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


def made(
    spec: ModelSpec,
    folder: str,
    candidate: Candidate,
    *,
    sequences: frozenset[str] | None = None,
    compiled_anew: bool = False,
) -> keras.Model:
    """The model as the spec describes it, under the policy that is set; compiled only if it comes so. Of a saved one,
    the inputs that are `sequences` take the candidate's length."""
    if spec.builder is not None:
        return _from_builder(spec, folder, candidate)
    if spec.keras_file is not None:
        return saved.build(spec, folder, candidate, sequences=sequences, compiled_anew=compiled_anew)
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
            # None is not the same as none: with an empty list Keras wants a `train_step` of the user's to update it.
            metrics=[_named("training.metrics", keras.metrics.get, metric) for metric in training.metrics] or None,
            jit_compile=_jit_compile(order),
            run_eagerly=training.run_eagerly,
        )


def _jit_compile(order: WorkOrder) -> bool | str:
    if order.training.jit_compile is not None:
        return order.training.jit_compile
    return True if order.device.stands_in_for is not None and not order.training.run_eagerly else "auto"


def _optimizer(training: TrainingSpec, candidate: Candidate) -> Any:
    key = "training.optimizer" if candidate.optimizer is None else "search.optimizer"
    for _, wanted in training.optimizer_choices:
        _named(key, keras.optimizers.get, wanted)  # a name that Keras does not know is said before one is needed
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
