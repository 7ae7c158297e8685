"""Work on tensors alone or in dicts and tuples, as Keras takes them: name each one, or map all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    mapped(tensors.__setitem__, nest)
    return tensors


def mapped(function: Callable[[str, Any], Any], nest: Nest, name: str = "") -> Nest:
    """Return the nest with each tensor replaced by `function(name, tensor)`. Lists become tuples."""
    prefix = f"{name}." if name else ""
    if isinstance(nest, dict):
        return {key: mapped(function, entry, f"{prefix}{key}") for key, entry in nest.items()}
    if isinstance(nest, tuple | list):
        return tuple(mapped(function, entry, f"{prefix}{place}") for place, entry in enumerate(nest))
    return function(name, nest)


def layout(nest: Nest) -> Nest:
    """Return the nest with names in place of tensors. It can be written as JSON, and `mapped` restores the nest."""
    return mapped(lambda name, _: name, nest)


def by_name(entries: Any) -> dict[str, Any]:
    """Return entries of the spec by the names of the model's inputs. A single entry has the empty name."""
    return entries if isinstance(entries, dict) else {"": entries}


def each(function: Callable[[Any], Any], entries: Any) -> Any:
    """Apply the function to one entry of the spec, or to every value of a dict of them."""
    if isinstance(entries, dict):
        return {name: function(entry) for name, entry in entries.items()}
    return function(entries)


def each_side(data: Any, function: Callable[[str, Any], Any]) -> tuple[Any, Any]:
    """Apply `function(side, entry)` to each entry of the inputs and of the targets of a dataset in the spec."""
    return each(partial(function, "inputs"), data.inputs), each(partial(function, "targets"), data.targets)
