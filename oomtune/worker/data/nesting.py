"""Tensors as Keras takes them, alone or in dicts and tuples: each by its name, and the same nest of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Nest = Any
"""One tensor or array, or a dict or a tuple of such; nested as deep as one likes."""


def parts(nest: Nest) -> dict[str, Any]:
    """Each one by its name: its key, its place in a tuple, or both, as `words.0`. One alone has the empty name."""
    found: dict[str, Any] = {}
    _collect(nest, "", found)
    return found


def _collect(nest: Nest, name: str, found: dict[str, Any]) -> None:
    if isinstance(nest, dict | tuple | list):
        for key, entry in _entries(nest):
            _collect(entry, _joined(name, key), found)
    else:
        found[name] = nest


def mapped(function: Callable[[str, Any], Any], nest: Nest, name: str = "") -> Nest:
    """The same nest of what the function makes of each name and tensor; a list becomes a tuple."""
    if isinstance(nest, dict):
        return {key: mapped(function, entry, _joined(name, key)) for key, entry in _entries(nest)}
    if isinstance(nest, tuple | list):
        return tuple(mapped(function, entry, _joined(name, key)) for key, entry in _entries(nest))
    return function(name, nest)


def layout(nest: Nest) -> Nest:
    """The nest with names for tensors, which can be written as JSON; `mapped` makes the nest of it again."""
    return mapped(lambda name, _: name, nest)


def _entries(nest: Any) -> list[tuple[str, Any]]:
    return list(nest.items()) if isinstance(nest, dict) else [(str(at), entry) for at, entry in enumerate(nest)]


def _joined(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
