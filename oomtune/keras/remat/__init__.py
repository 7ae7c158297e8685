"""Rematerialisation: parts of a model are computed again in the backward pass instead of being kept until then.

It is the same model with another way to run: weights, names, optimizer and saved files stay as they are. It imports
TensorFlow, so it is itself imported only by a trial, or inside the function that a training script calls.
"""

from __future__ import annotations

from typing import Any

import keras

from oomtune.errors import UsageProblem
from oomtune.keras.remat import layers
from oomtune.keras.remat.account import Recomputed
from oomtune.keras.remat.surroundings import stateless

NONE, FULL = "none", "full"
_MARK = "_oomtune_remat"


def rematerialise(model: keras.Model, how: str) -> Recomputed:
    """Have the model compute parts of itself again: those that pay (`full`), or the layers whose names match one of
    the patterns, which are joined by commas. Asked for the same again, a model stays as it is."""
    done: Recomputed | None = vars(model).get(_MARK)
    if done is not None:
        if done.how != how:
            raise UsageProblem(
                f"the model is already rematerialised as {done.how!r}, and can't be as {how!r} too",
                hint="build the model anew, and call rematerialise once",
            )
        return done
    account = Recomputed(how)
    if how == NONE:
        return account
    if _can_be_cut_now(model, how):
        _apply(model, account)
    else:
        _apply_when_first_run(model, account)
    vars(model)[_MARK] = account
    return account


def _can_be_cut_now(model: keras.Model, how: str) -> bool:
    """Does it have all the layers that are to be found in it?"""
    if isinstance(model, keras.Sequential):
        return layers.graph_of(model) is not None
    return how == FULL or bool(model.built)


def _apply(model: keras.Model, account: Recomputed) -> None:
    if account.how == FULL:
        layers.cut(model, account)
    else:
        layers.matching(model, [pattern.strip() for pattern in account.how.split(",")], account)


def _apply_when_first_run(model: keras.Model, account: Recomputed) -> None:
    """A layer may make its layers when it is built, and Keras builds before it runs."""
    plain = model.call

    def call(*args: Any, **kwargs: Any) -> Any:
        if stateless():
            return plain(*args, **kwargs)
        model.call = plain
        vars(model).pop(_MARK, None)  # if it fails now it may be asked for anew
        _apply(model, account)
        vars(model)[_MARK] = account
        return model.call(*args, **kwargs)

    model.call = call
