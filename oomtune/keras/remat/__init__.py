"""Rematerialisation: recompute parts of a model in the backward pass instead of keeping their activations.

Weights, names, optimizer and saved files do not change. This package imports TensorFlow, so only trials import it
at module level.
"""

from __future__ import annotations

from typing import Any

import keras

from oomtune.errors import UsageProblem
from oomtune.keras.private_keras import is_stateless
from oomtune.keras.remat import select
from oomtune.keras.remat.account import Recomputed

NONE, FULL = "none", "full"
_MARK = "_oomtune_remat"


def rematerialise(model: keras.Model, how: str) -> Recomputed:
    """Make the model recompute parts of itself, and return the record of what it recomputes.

    `how` is `none`, `full` (the parts where it pays), or comma-separated patterns of layer names. A second call with
    the same `how` changes nothing.
    """
    earlier: Recomputed | None = vars(model).get(_MARK)
    if earlier is not None:
        if earlier.how != how:
            raise UsageProblem(
                f"the model is already rematerialised as {earlier.how!r}, so it can't be rematerialised as {how!r}",
                hint="build the model again, and call rematerialise once",
            )
        return earlier
    account = Recomputed(how)
    if how == NONE:
        return account
    if _has_all_layers(model, how):
        _apply(model, account)
    else:
        _apply_on_first_run(model, account)
    vars(model)[_MARK] = account
    return account


def _has_all_layers(model: keras.Model, how: str) -> bool:
    if isinstance(model, keras.Sequential):
        return select.graph_of(model) is not None
    return how == FULL or bool(model.built)


def _apply(model: keras.Model, account: Recomputed) -> None:
    if account.how == FULL:
        select.recompute_worthwhile_parts(model, account)
    else:
        patterns = [pattern.strip() for pattern in account.how.split(",")]
        select.recompute_matching_layers(model, patterns, account)


def _apply_on_first_run(model: keras.Model, account: Recomputed) -> None:
    """Wait for the first call: layers may create their own layers when Keras builds them, which precedes it."""
    plain = model.call

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_stateless():
            return plain(*args, **kwargs)
        model.call = plain
        vars(model).pop(_MARK, None)  # after a failure, the caller may try again
        _apply(model, account)
        vars(model)[_MARK] = account
        return model.call(*args, **kwargs)

    model.call = call
