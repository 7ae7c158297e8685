"""Compiling a model as the spec says it is trained."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras

from oomtune.domain import ByOutput, Candidate, ClassConfig, TrainingSpec, WorkOrder
from oomtune.errors import TrialCrashed
from oomtune.keras.compiling import accumulate_gradients
from oomtune.worker.build.layers import first_words

# Keras chooses what these stand for when it sees what a model makes; they are names of no function.
_CHOSEN_METRICS = ("accuracy", "acc")
_CHOSEN_LOSSES = ("crossentropy", "ce")


def compile_as_told(model: keras.Model, order: WorkOrder, candidate: Candidate) -> None:
    """Compile it; one that comes compiled stays as it is, unless the spec says how."""
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
            loss=_loss(training.loss),
            loss_weights=_loss_weights(training),
            metrics=_metrics(training.metrics),
            jit_compile=_jit_compile(order),
            run_eagerly=training.run_eagerly,
        )


def _loss(loss: str | ClassConfig | ByOutput) -> Any:
    if not isinstance(loss, ByOutput):
        return _one_loss("training.loss", loss)
    made = {
        name: _one_loss(_key("training.loss", name), entry[0]) if entry else None
        for name, entry in loss.named().items()
    }
    return made if loss.names else list(made.values())


def _one_loss(key: str, wanted: str | ClassConfig) -> Any:
    return wanted if wanted in _CHOSEN_LOSSES else _named(key, keras.losses.get, wanted)


def _loss_weights(training: TrainingSpec) -> dict[str, float] | list[float] | None:
    if not training.loss_weights or not isinstance(training.loss, ByOutput):
        return None
    names = training.loss.names
    return dict(zip(names, training.loss_weights, strict=True)) if names else list(training.loss_weights)


def _metrics(metrics: tuple[str | ClassConfig, ...] | ByOutput) -> Any:
    if not isinstance(metrics, ByOutput):
        # None is not the same as none: with an empty list Keras wants a `train_step` of the user's to update it.
        return [_metric(_key("training.metrics", index), metric) for index, metric in enumerate(metrics)] or None
    made = {
        name: [_metric(_key("training.metrics", name), metric) for metric in entry] or None
        for name, entry in metrics.named().items()
    }
    return made if metrics.names else list(made.values())


def _metric(key: str, wanted: str | ClassConfig) -> Any:
    """Names stay names: Keras shows them so."""
    made = wanted if wanted in _CHOSEN_METRICS else _named(key, keras.metrics.get, wanted)
    return wanted if isinstance(wanted, str) else made


def _key(key: str, name: str | int) -> str:
    return f"{key}[{name}]" if isinstance(name, int) else f"{key}.{name}"


def _jit_compile(order: WorkOrder) -> bool | str:
    if order.training.jit_compile is not None:
        return order.training.jit_compile
    return True if order.device.stands_in_for is not None and not order.training.run_eagerly else "auto"


def _optimizer(training: TrainingSpec, candidate: Candidate) -> Any:
    key = "training.optimizer" if candidate.optimizer is None else "search.optimizer"
    for _, wanted in training.optimizer_choices:
        _named(key, keras.optimizers.get, wanted)  # a name that Keras does not know is said before one is needed
    optimizer = _named(key, keras.optimizers.get, training.optimizer_of(candidate))
    return accumulate_gradients(optimizer, training.accumulation_steps(candidate.batch_size))


def _named(key: str, get: Callable[[Any], Any], wanted: str | ClassConfig) -> Any:
    """A Keras object by name."""
    identifier: Any = wanted
    if isinstance(wanted, ClassConfig):
        identifier = {"class_name": wanted.class_name, "config": wanted.config}
    try:
        return get(identifier)
    except (TypeError, ValueError) as error:
        raise TrialCrashed(f"{key}: {first_words(error)}", hint="use a name that Keras knows") from None
