"""What the user calls an object: the variable, the attribute or the entry that it is found under."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import CellType, FunctionType
from typing import Any

from oomtune.worker.watch import user_frames as users

_DEPTH = 3  # dicts inside dicts


def name_of(held: Any, depth: int = _DEPTH) -> str:
    """Such as `Model.kept`, `losses in train()` or `history['loss']`; `something` when nobody has a name for it."""
    names = [*_on_the_stack(held), *_among_objects(held, depth)]
    # Where there are several, the one that its owner meant for others to see.
    return min(names, key=lambda name: "._" in name, default="something")


def _on_the_stack(held: Any) -> Iterator[str]:
    for frame in users.frames():
        inside = "" if frame.f_code.co_name == "<module>" else f" in {frame.f_code.co_name}()"
        yield from (f"{name}{inside}" for name, value in list(frame.f_locals.items()) if value is held)


def attributes(thing: Any) -> dict[str, Any]:
    """Its attributes, without a word from the object itself; none for what has no dict of them."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else dict(found)


def _among_objects(held: Any, depth: int) -> Iterator[str]:
    for referrer in gc.get_referrers(held):
        if isinstance(referrer, dict):
            yield from _in_dict(referrer, held, depth)
        elif isinstance(referrer, CellType):
            yield from _in_closure(referrer)
        else:
            yield from _as_attribute(referrer, held)


def _in_dict(names: dict[Any, Any], held: Any, depth: int) -> Iterator[str]:
    keys = [key for key, value in list(dict.items(names)) if value is held]
    if not keys:
        return
    if "__builtins__" in names and "__name__" in names:
        module = "" if names["__name__"] == "__main__" else f"{names['__name__']}."
        yield f"{module}{keys[0]}"
        return
    owners = gc.get_referrers(names)
    named = [name for owner in owners if _owns(owner, names) for name in _as_attribute(owner, held)]
    if named:
        yield named[0]
    elif depth:
        key = repr(keys[0]) if isinstance(keys[0], str | int) else "..."
        yield f"{name_of(names, depth - 1)}[{key}]"


def _owns(owner: Any, names: dict[Any, Any]) -> bool:
    """A class shows a view of its dict, so that the two can't be compared."""
    return isinstance(owner, type) or attributes(owner) is names


def _as_attribute(owner: Any, held: Any) -> Iterator[str]:
    kind = owner if isinstance(owner, type) else type(owner)
    yield from (f"{kind.__name__}.{name}" for name, value in list(attributes(owner).items()) if value is held)


def _in_closure(cell: CellType) -> Iterator[str]:
    for closure in gc.get_referrers(cell):
        if not isinstance(closure, tuple):
            continue
        for function in gc.get_referrers(closure):
            if not isinstance(function, FunctionType) or function.__closure__ is not closure:
                continue
            if users.is_users(function.__code__.co_filename):  # our own functions have hold of it too by now
                index = next(place for place, each in enumerate(closure) if each is cell)
                yield f"{function.__code__.co_freevars[index]} in {function.__name__}()"
