"""Losses and metrics in the structures that `Model.compile` takes, as tuned configs and saved models have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def each(get: Callable[[Any], Any], said: Any) -> Any:
    """The same structure with an object, from `get`, in place of each configuration of one. Names stay names, as Keras
    chooses by them."""
    if isinstance(said, dict):
        return get(said) if "class_name" in said else {name: each(get, one) for name, one in said.items()}
    return [each(get, one) for one in said] if isinstance(said, list) else said
