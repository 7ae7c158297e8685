"""A model's outputs, the losses they have, and whether what the spec says of each of them suits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from oomtune.domain import ByOutput, TrainingSpec
from oomtune.errors import TrialCrashed
from oomtune.worker.data.nesting import parts

_LOSS = "training.loss"
_SHORT = {"mse": "meansquarederror", "mae": "meanabsoluteerror"}


def compared(network: keras.Model, made: Any, targets: Any) -> dict[str, tuple[Any, Any]]:
    """What the targets are compared with, by their names, and the loss that does it; nothing where that is unclear."""
    loss, tensors = getattr(network, "loss", None), tf.nest.flatten(made)
    alone = len(tensors) == 1 and not isinstance(made, dict)
    if made is None:
        return {}
    given = parts(targets)
    names = getattr(network, "output_names", None) or []
    if alone:
        outputs = dict.fromkeys(given, tensors[0]) if len(given) == 1 else {}
    elif isinstance(targets, tuple):
        outputs = dict(zip(given, tensors, strict=True)) if len(given) == len(tensors) else {}
        loss = [loss.get(name) for name in names] if isinstance(loss, dict) else loss
    else:
        outputs = made if isinstance(made, dict) else dict(zip(names, tensors, strict=False))
    losses = dict(zip(outputs, loss, strict=False)) if isinstance(loss, list | tuple) else loss
    known = {name: tensor for name, tensor in outputs.items() if name in given}
    return {name: (known[name], losses.get(name) if isinstance(losses, dict) else losses) for name in known}


def loss_names(network: keras.Model, outputs: Iterable[str]) -> dict[str, str]:
    """The name of the loss of each output of a compiled model, in one spelling; empty where there is none."""
    loss, names = getattr(network, "loss", None), list(outputs)
    if isinstance(loss, list | tuple):
        loss = dict(zip(names, loss, strict=False))
    return {name: plain(loss.get(name) if isinstance(loss, dict) else loss) for name in names}


def plain(loss: Any) -> str:
    """The name of a loss in one spelling."""
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")
    spelt = str(name).replace("_", "").lower()
    return _SHORT.get(spelt, spelt)


def listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names)


def check(training: TrainingSpec, network: keras.Model, made: Any, targets: Any, where: str) -> None:
    """Raise `TrialCrashed` unless losses, metrics and targets are said of outputs that the model has. Keras finds that
    out in the middle of a step, or pairs what is not meant for each other. `where` is the entry of the targets."""
    if training.loss is None or made is None or not _trains_as_keras_does(network):
        return
    count = len(tf.nest.flatten(made))
    if count != (len(made) if isinstance(made, dict | list | tuple) else 1):
        return  # outputs within outputs have no names of their own
    names, has_order = _names(network, made, count), not isinstance(made, dict)
    _check_entries(_LOSS, training.loss, names, count, has_order=has_order)
    _check_entries("training.metrics", training.metrics, names, count, has_order=has_order)
    if count > 1:
        _check_targets(training.loss, names, count, targets, where, has_order=has_order)


def _trains_as_keras_does(network: keras.Model) -> bool:
    """Does it leave to Keras what losses are computed of?"""
    steps = ("train_step", "compute_loss")
    return all(getattr(type(network), step) is getattr(keras.Model, step) for step in steps)


def _names(network: keras.Model, made: Any, count: int) -> list[str]:
    """What the outputs are called; nothing where they have no names, or one has no need of any."""
    if isinstance(made, dict):
        return list(made)
    names = list(getattr(network, "output_names", None) or [])
    return names if count > 1 and len(names) == count else []


def _check_entries(key: str, said: Any, names: list[str], count: int, *, has_order: bool) -> None:
    """`said` is of each output by its name, of each in their order, or of all."""
    if isinstance(said, ByOutput) and said.names:
        _check_by_name(key, said, names, count, all_needed=has_order and key == _LOSS)
        return
    entries = said.entries if isinstance(said, ByOutput) else said if isinstance(said, tuple) else ()
    if count == 1 or not entries:
        return
    if not has_order:
        raise TrialCrashed(
            f"{key} is a list, and the model's outputs have names but no order",
            hint=f"give a mapping with the names {listed(names)}",
        )
    if len(entries) != count:
        called = f": {listed(names)}" if names else ""
        raise TrialCrashed(
            f"{key} is a list of {len(entries)}, and the model has {count} outputs{called}",
            hint="give one for each, in this order, or a mapping by their names" if names else "give one for each",
        )


def _check_by_name(key: str, said: ByOutput, names: list[str], count: int, *, all_needed: bool) -> None:
    if not names:
        what = "the model has one output" if count == 1 else "the model's outputs have no names"
        hint = "leave the name out" if count == 1 else "give a list in their order"
        raise TrialCrashed(f"{key} is a mapping by outputs, and {what}", hint=hint)
    unknown = [name for name in said.names if name not in names]
    if unknown:
        raise TrialCrashed(
            f"{key}.{unknown[0]}: the model has no output {unknown[0]!r}", hint=f"its outputs are {listed(names)}"
        )
    missing = [name for name in names if name not in said.names]
    if missing and all_needed:
        raise TrialCrashed(
            f"{key} has none for the output {missing[0]!r}", hint=f"give it one, or {missing[0]}: null to have none"
        )


def _check_targets(loss: Any, names: list[str], count: int, targets: Any, where: str, *, has_order: bool) -> None:
    """Is there something to compare each output with that has a loss?"""
    by_output = loss if isinstance(loss, ByOutput) else None
    has_loss = [True] * count
    if by_output is not None:
        said = by_output.named()
        has_loss = [bool(said.get(name)) for name in (names if by_output.names else range(count))]
    if isinstance(targets, tf.TensorSpec) and sum(has_loss) > 1:
        called = f": {listed(names)}" if names else ""
        raise TrialCrashed(
            f"{where} is one tensor, and the model has {count} outputs{called}",
            hint="give a mapping with the targets of each",
        )
    if not isinstance(targets, dict):
        return
    if not names:
        raise TrialCrashed(
            f"{where} has {listed(targets)}, and the model's outputs have no names",
            hint="return a dict from the model's call, with these names",
        )
    # Where outputs are a list and losses have names, Keras wants targets also for an output without a loss.
    all_needed = has_order and (by_output is None or bool(by_output.names))
    needed = [name for name, needs in zip(names, has_loss, strict=True) if needs or all_needed]
    missing = [name for name in needed if name not in targets]
    if missing:
        raise TrialCrashed(
            f"{where} has {listed(targets)}, and none for the model's output {missing[0]!r}",
            hint=f"give the targets of each output by its name: {listed(needed)}",
        )
