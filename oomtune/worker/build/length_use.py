"""Does the length under trial reach anything? An answer about one that nothing takes would be made up."""

from __future__ import annotations

from typing import Any

from oomtune.domain import WorkOrder
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
    made_up = order.dataset.synthetic
    if made_up is None:
        return order.scan is not None and bool(order.scan.sequences)
    tensors = [tensor for side in (made_up.inputs, made_up.targets) for tensor in sources.by_name(side).values()]
    return any(_WORD in tensor.shape for tensor in tensors)


def _in_model(order: WorkOrder) -> bool:
    model = order.model
    for key, name in (("model.builder", model.builder), ("model.train_step", model.train_step)):
        if name is not None and code.takes_length(code.load(name, order.folder, key)):
            return True
    said = [model.args, *(layer.config for layer in model.layers)]
    return _says_it(said if model.application is None else model.application.args)


def _says_it(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_says_it, value.values() if isinstance(value, dict) else value))
    return bool(value == _WORD)
