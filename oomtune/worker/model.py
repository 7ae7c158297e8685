"""Building and compiling the model that a spec describes, for one candidate."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from oomtune.domain import Candidate, ClassConfig, ModelSpec, TrainingSpec, WorkOrder
from oomtune.errors import TrialCrashed

_NAMES = ("sequence_length", "precision", "batch_size")


def build(order: WorkOrder, candidate: Candidate) -> keras.Model:
    """The model under the candidate's precision policy, compiled as the spec says."""
    keras.config.set_dtype_policy(candidate.precision)
    if order.model.builder is not None:
        model = _from_builder(order.model, order.folder, candidate)
    else:
        model = _from_layers(order.model.layers, candidate)
    _compile(model, order, candidate)
    return model


def _from_layers(layers: tuple[ClassConfig, ...], candidate: Candidate) -> keras.Model:
    model = keras.Sequential()
    for index, layer in enumerate(layers):
        where = f"model.layers[{index}] ({layer.class_name})"
        maker = keras.Input if layer.class_name in ("Input", "InputLayer") else getattr(keras.layers, layer.class_name)
        try:
            model.add(maker(**_with_length(layer.config, candidate)))
        except (TypeError, ValueError) as error:
            raise TrialCrashed(
                f"{where}: {_first_words(error)}", hint="see that layer in the Keras API docs"
            ) from error
    return model


def _with_length(value: Any, candidate: Candidate) -> Any:
    """The same configuration with the word `sequence_length` replaced by the length under trial."""
    if isinstance(value, dict):
        return {key: _with_length(entry, candidate) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_with_length(entry, candidate) for entry in value]
    return candidate.sequence_length if value == "sequence_length" else value


def _from_builder(spec: ModelSpec, folder: str, candidate: Candidate) -> keras.Model:
    builder = _import_builder(spec.builder or "", folder)
    offered = {name: getattr(candidate, name) for name in _NAMES}
    accepted = inspect.signature(builder).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    arguments = {name: value for name, value in offered.items() if takes_all or name in accepted} | spec.args
    unknown = sorted(set(arguments) - set(accepted))
    if unknown and not takes_all:
        raise TrialCrashed(
            f"model.args: {spec.builder} takes no argument {unknown[0]!r}",
            hint=f"it takes: {', '.join(accepted) or 'none'}",
        )
    model = builder(**arguments)
    if not isinstance(model, keras.Model):
        raise TrialCrashed(
            f"model.builder: {spec.builder} returned {type(model).__name__}, not a keras.Model",
            hint="return the model from the builder",
        )
    return model


def _import_builder(name: str, folder: str) -> Callable[..., Any]:
    module_name, _, function_name = name.partition(":")
    sys.path[:0] = [folder, str(Path.cwd())]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if missing != module_name and not module_name.startswith(f"{missing}."):
            raise  # the module was found; what it imports was not, and its traceback says where
        raise TrialCrashed(
            f"model.builder: no module named {missing!r}", hint=f"looked in {folder} and {Path.cwd()!s}"
        ) from None
    builder = getattr(module, function_name, None)
    if not callable(builder):
        raise TrialCrashed(f"model.builder: {module_name} has no function {function_name!r}")
    return builder  # type: ignore[no-any-return]


def _compile(model: keras.Model, order: WorkOrder, candidate: Candidate) -> None:
    training = order.training
    if model.compiled and training.loss is None:
        if training.accumulation_steps(candidate.batch_size) > 1:
            raise TrialCrashed(
                "training.effective_batch_size can't be kept: the model comes compiled with its own optimizer",
                hint="set training.optimizer and training.loss in the spec, or leave effective_batch_size out",
            )
        return
    if training.loss is None:
        raise TrialCrashed("training.loss is not set, and the model does not come compiled", hint="set training.loss")
    with warnings.catch_warnings():
        # Asking for XLA where a layer can't have it is how to learn what Keras would choose on a GPU.
        warnings.filterwarnings("ignore", message="Model doesn't support `jit_compile=True`")
        model.compile(
            optimizer=_optimizer(training, candidate.batch_size),
            loss=_named("training.loss", keras.losses.get, training.loss),
            metrics=[_named("training.metrics", keras.metrics.get, metric) for metric in training.metrics],
            jit_compile=_jit_compile(order),
            run_eagerly=training.run_eagerly,
        )


def _jit_compile(order: WorkOrder) -> bool | str:
    if order.training.jit_compile is not None:
        return order.training.jit_compile
    return True if order.device.stands_in_for is not None and not order.training.run_eagerly else "auto"


def _optimizer(training: TrainingSpec, batch_size: int) -> Any:
    optimizer = _named("training.optimizer", keras.optimizers.get, training.optimizer)
    steps = training.accumulation_steps(batch_size)
    if steps < 2:
        return optimizer
    return type(optimizer).from_config(optimizer.get_config() | {"gradient_accumulation_steps": steps})


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
        raise TrialCrashed(f"{key}: {_first_words(error)}", hint="use a name that Keras knows") from None


def _first_words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
