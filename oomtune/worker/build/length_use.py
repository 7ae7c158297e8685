"""Does the length under trial reach anything? An answer about one that nothing takes would be made up."""

from __future__ import annotations

from typing import Any

from oomtune.domain import Application, Builder, Layers, SyntheticData, TrainStep, WorkOrder
from oomtune.errors import TrialCrashed
from oomtune.worker.build import user_code as code
from oomtune.worker.data import sources

_WORD = "sequence_length"


def check(order: WorkOrder) -> None:
    """Raise `TrialCrashed` when lengths are searched, and neither the data nor the model is made for one."""
    if order.trial.candidate.sequence_length is None or _in_data(order) or _in_model(order):
        return
    raise TrialCrashed(
        f"search.{_WORD} is set, and neither the model nor the data takes a length: with each it would be the same",
        hint=f"write {_WORD} for it in the shapes, let the function that makes the model take it, or leave it out",
    )


def _in_data(order: WorkOrder) -> bool:
    made_up = order.dataset
    if not isinstance(made_up, SyntheticData):
        return order.scan is not None and bool(order.scan.sequences)
    tensors = [tensor for side in (made_up.inputs, made_up.targets) for tensor in sources.by_name(side).values()]
    return any(_WORD in tensor.shape for tensor in tensors)


def _in_model(order: WorkOrder) -> bool:
    match order.model:
        case Builder(function=name, args=args) | TrainStep(factory=name, args=args):
            return code.takes_length(code.load(name, order.folder, f"model.{order.model.kind}")) or _says_it(args)
        case Application(args=args):
            return _says_it(args)
        case Layers(layers=layers):
            return _says_it([layer.config for layer in layers])
    return False


def _says_it(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_says_it, value.values() if isinstance(value, dict) else value))
    return bool(value == _WORD)
