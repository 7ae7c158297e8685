"""Compile a model with the spec's training settings, and match its outputs with losses, metrics and targets."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from oomtune.domain import ByOutput, Candidate, ClassConfig, TrainingSpec, WorkOrder
from oomtune.errors import TrialCrashed
from oomtune.keras.compiling import accumulate_gradients
from oomtune.worker.build.layers import first_line
from oomtune.worker.nesting import parts

# For these names Keras picks a metric or loss by the shape of the output. They name no function.
METRICS_BY_SHAPE = ("accuracy", "acc")
LOSSES_BY_SHAPE = ("crossentropy", "ce")
_LOSS, _METRICS = "training.loss", "training.metrics"
_SHORT_NAMES = {"mse": "meansquarederror", "mae": "meanabsoluteerror"}


def compile_model(model: keras.Model, order: WorkOrder, candidate: Candidate) -> None:
    """Compile the model as the spec asks. A model that comes compiled stays unchanged unless the spec sets a loss."""
    training = order.training
    if model.compiled and training.loss is None:
        key = "training.effective_batch_size" if training.accumulation_steps(candidate.batch_size) > 1 else ""
        key = "search.optimizer" if candidate.optimizer is not None else key
        if key:
            raise TrialCrashed(
                f"{key} has no effect: the model comes compiled with its own optimizer",
                hint=f"set training.loss to compile the model again, or remove {key}",
            )
        return
    if training.loss is None:
        raise TrialCrashed(f"{_LOSS} is not set, and the model does not come compiled", hint=f"set {_LOSS}")
    with warnings.catch_warnings():
        # A CPU that stands in for a GPU uses XLA as Keras would there. Keras warns if a layer does not support it.
        warnings.filterwarnings("ignore", message="Model doesn't support `jit_compile=True`")
        model.compile(
            optimizer=_optimizer(training, candidate),
            loss=_losses(training.loss),
            loss_weights=_loss_weights(training),
            metrics=_metrics(training.metrics),
            jit_compile=_jit_compile(order),
            run_eagerly=training.run_eagerly,
        )


def _losses(loss: str | ClassConfig | ByOutput) -> Any:
    if isinstance(loss, ByOutput):
        return _for_each_output(_LOSS, loss, lambda key, entry: _make_loss(key, entry[0]) if entry else None)
    return _make_loss(_LOSS, loss)


def _make_loss(key: str, loss: str | ClassConfig) -> Any:
    return loss if loss in LOSSES_BY_SHAPE else _keras_object(key, keras.losses.get, loss)


def _loss_weights(training: TrainingSpec) -> dict[str, float] | list[float] | None:
    if not training.loss_weights or not isinstance(training.loss, ByOutput):
        return None
    names = training.loss.names
    return dict(zip(names, training.loss_weights, strict=True)) if names else list(training.loss_weights)


def _metrics(metrics: tuple[str | ClassConfig, ...] | ByOutput) -> Any:
    if isinstance(metrics, ByOutput):
        return _for_each_output(
            _METRICS, metrics, lambda key, entry: [_make_metric(key, metric) for metric in entry] or None
        )
    # Without metrics pass None: with an empty list Keras expects the user's own `train_step` to update it.
    return [_make_metric(f"{_METRICS}[{index}]", metric) for index, metric in enumerate(metrics)] or None


def _make_metric(key: str, metric: str | ClassConfig) -> Any:
    """Return the metric, or only its name once Keras knows it: Keras then reports the metric under this name."""
    keras_metric = metric if metric in METRICS_BY_SHAPE else _keras_object(key, keras.metrics.get, metric)
    return metric if isinstance(metric, str) else keras_metric


def _for_each_output(key: str, entries: ByOutput, make: Callable[[str, Any], Any]) -> Any:
    """Return the result of `make` for each output: a dict if the outputs have names, a list otherwise."""
    results = {
        name: make(f"{key}[{name}]" if isinstance(name, int) else f"{key}.{name}", entry)
        for name, entry in entries.named().items()
    }
    return results if entries.names else list(results.values())


def _jit_compile(order: WorkOrder) -> bool | str:
    if order.training.jit_compile is not None:
        return order.training.jit_compile
    return True if order.device.stands_in_for is not None and not order.training.run_eagerly else "auto"


def _optimizer(training: TrainingSpec, candidate: Candidate) -> Any:
    key = "training.optimizer" if candidate.optimizer is None else "search.optimizer"
    for _, optimizer in training.optimizer_choices:
        _keras_object(key, keras.optimizers.get, optimizer)  # reports an unknown name in the first trial
    optimizer = _keras_object(key, keras.optimizers.get, training.optimizer_of(candidate))
    return accumulate_gradients(optimizer, training.accumulation_steps(candidate.batch_size))


def _keras_object(key: str, get: Callable[[Any], Any], config: str | ClassConfig) -> Any:
    identifier: Any = config
    if isinstance(config, ClassConfig):
        identifier = {"class_name": config.class_name, "config": config.config}
    try:
        return get(identifier)
    except (TypeError, ValueError) as error:
        raise TrialCrashed(f"{key}: {first_line(error)}", hint="use a name that Keras knows") from None


def loss_name(loss: Any) -> str:
    """Return the loss's name in lower case, without underscores or abbreviations."""
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")
    plain = str(name).replace("_", "").lower()
    return _SHORT_NAMES.get(plain, plain)


def loss_names(model: keras.Model, outputs: Iterable[str]) -> dict[str, str]:
    """Return the name of each output's loss in a compiled model, empty if the output has none."""
    loss, names = getattr(model, "loss", None), list(outputs)
    if isinstance(loss, list | tuple):
        loss = dict(zip(names, loss, strict=False))
    return {name: loss_name(loss.get(name) if isinstance(loss, dict) else loss) for name in names}


def output_and_loss_of_targets(model: keras.Model, outputs: Any, targets: Any) -> dict[str, tuple[Any, Any]]:
    """Return each target's output and loss by the target's name. Leave out targets whose output is unclear."""
    if outputs is None:
        return {}
    loss, tensors, named_targets = getattr(model, "loss", None), tf.nest.flatten(outputs), parts(targets)
    names = getattr(model, "output_names", None) or []
    if len(tensors) == 1 and not isinstance(outputs, dict):
        by_target = dict.fromkeys(named_targets, tensors[0]) if len(named_targets) == 1 else {}
    elif isinstance(targets, tuple):
        by_target = dict(zip(named_targets, tensors, strict=True)) if len(named_targets) == len(tensors) else {}
        loss = [loss.get(name) for name in names] if isinstance(loss, dict) else loss
    else:
        by_target = outputs if isinstance(outputs, dict) else dict(zip(names, tensors, strict=False))
    losses = dict(zip(by_target, loss, strict=False)) if isinstance(loss, list | tuple) else loss
    return {
        name: (tensor, losses.get(name) if isinstance(losses, dict) else losses)
        for name, tensor in by_target.items()
        if name in named_targets
    }


def check_outputs(training: TrainingSpec, model: keras.Model, outputs: Any, targets: Any, targets_name: str) -> None:
    """Raise `TrialCrashed` unless losses, metrics and targets match the model's outputs.

    Keras would fail in the middle of a step, or pair losses with the wrong outputs. Messages call the targets
    `targets_name`.
    """
    if training.loss is None or outputs is None or not _computes_losses_as_keras_does(model):
        return
    count = len(tf.nest.flatten(outputs))
    if count != (len(outputs) if isinstance(outputs, dict | list | tuple) else 1):
        return  # nested outputs have no names of their own
    names, has_order = _output_names(model, outputs, count), not isinstance(outputs, dict)
    _check_entries(_LOSS, training.loss, names, count, has_order=has_order)
    _check_entries(_METRICS, training.metrics, names, count, has_order=has_order)
    if count > 1:
        _check_targets(training.loss, names, count, targets, targets_name, has_order=has_order)


def _computes_losses_as_keras_does(model: keras.Model) -> bool:
    methods = ("train_step", "compute_loss")
    return all(getattr(type(model), method) is getattr(keras.Model, method) for method in methods)


def _output_names(model: keras.Model, outputs: Any, count: int) -> list[str]:
    """Return the names of the outputs, an empty list if they have none or there is only one."""
    if isinstance(outputs, dict):
        return list(outputs)
    names = list(getattr(model, "output_names", None) or [])
    return names if count > 1 and len(names) == count else []


def _check_entries(key: str, setting: Any, names: list[str], count: int, *, has_order: bool) -> None:
    """Check losses or metrics that are given by name, as a list in the order of the outputs, or once for all."""
    if isinstance(setting, ByOutput) and setting.names:
        _check_names(key, setting, names, count, needs_all=has_order and key == _LOSS)
        return
    entries = setting.entries if isinstance(setting, ByOutput) else setting if isinstance(setting, tuple) else ()
    if count == 1 or not entries:
        return
    if not has_order:
        raise TrialCrashed(
            f"{key} is a list, but the model's outputs have names and no order",
            hint=f"give a mapping with the names {quoted(names)}",
        )
    if len(entries) != count:
        raise TrialCrashed(
            f"{key} is a list of {len(entries)}, but {_outputs_of_model(names, count)}",
            hint="give one entry per output, in this order or by name" if names else "give one entry per output",
        )


def _check_names(key: str, setting: ByOutput, names: list[str], count: int, *, needs_all: bool) -> None:
    if not names:
        reason = "the model has only one output" if count == 1 else "the model's outputs have no names"
        hint = "leave out the name" if count == 1 else "give a list in the order of the outputs"
        raise TrialCrashed(f"{key} is a mapping by output, but {reason}", hint=hint)
    unknown = [name for name in setting.names if name not in names]
    if unknown:
        raise TrialCrashed(
            f"{key}.{unknown[0]}: the model has no output {unknown[0]!r}", hint=f"its outputs are {quoted(names)}"
        )
    missing = [name for name in names if name not in setting.names]
    if missing and needs_all:
        raise TrialCrashed(
            f"{key} has no entry for the output {missing[0]!r}", hint=f"add one, or {missing[0]}: null for no loss"
        )


def _check_targets(
    loss: Any, names: list[str], count: int, targets: Any, targets_name: str, *, has_order: bool
) -> None:
    """Check that each output with a loss has a target."""
    has_loss = [True] * count
    if isinstance(loss, ByOutput):
        losses = loss.named()
        has_loss = [bool(losses.get(name)) for name in (names if loss.names else range(count))]
    if isinstance(targets, tf.TensorSpec) and sum(has_loss) > 1:
        raise TrialCrashed(
            f"{targets_name} is one tensor, but {_outputs_of_model(names, count)}",
            hint="give a mapping with the targets of each output",
        )
    if not isinstance(targets, dict):
        return
    if not names:
        raise TrialCrashed(
            f"{targets_name} has {quoted(targets)}, but the model's outputs have no names",
            hint="return a dict with these names from the model's call",
        )
    # If outputs are a list and losses have names, Keras wants targets even for an output without a loss.
    needs_all = has_order and (not isinstance(loss, ByOutput) or bool(loss.names))
    required = [name for name, needs_target in zip(names, has_loss, strict=True) if needs_target or needs_all]
    missing = [name for name in required if name not in targets]
    if missing:
        raise TrialCrashed(
            f"{targets_name} has {quoted(targets)}, but nothing for the model's output {missing[0]!r}",
            hint=f"give the targets of each output by name: {quoted(required)}",
        )


def _outputs_of_model(names: list[str], count: int) -> str:
    return f"the model has {count} outputs{f': {quoted(names)}' if names else ''}"


def quoted(names: Iterable[Any]) -> str:
    return ", ".join(repr(name) for name in names)
