"""Work on tensors alone or in dicts and tuples, as Keras takes them: name each one, or map all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Nest = Any
"""One tensor or array, or a dict or tuple of nests."""


def parts(nest: Nest) -> dict[str, Any]:
    """Return each tensor by its name: its key, its place in a tuple, or a path such as `words.0`.

    A tensor that is not nested has the empty name.
    """
    if not isinstance(nest, dict | tuple | list):  # most nests: a scan calls this for every sample
        return {"": nest}
    tensors: dict[str, Any] = {}
    map_parts(tensors.__setitem__, nest)
    return tensors


def map_parts(function: Callable[[str, Any], Any], nest: Nest, name: str = "") -> Nest:
    """Return the nest with each tensor replaced by `function(name, tensor)`. Lists become tuples."""
    prefix = f"{name}." if name else ""
    if isinstance(nest, dict):
        return {key: map_parts(function, entry, f"{prefix}{key}") for key, entry in nest.items()}
    if isinstance(nest, tuple | list):
        return tuple(map_parts(function, entry, f"{prefix}{place}") for place, entry in enumerate(nest))
    return function(name, nest)
