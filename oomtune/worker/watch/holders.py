"""Finds the containers and variables that hold more and more tensors, under the user's names for them.

Each search goes through every object that Python's garbage collector tracks, which takes a tenth of a second or more,
so it runs only once memory climbs. It never calls a method of the objects, not even `len`, because a method that raises
must not fail the trial.
"""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any, Literal

import keras
import tensorflow as tf

from oomtune.keras.private_tensorflow import EagerTensor
from oomtune.worker.watch import user_frames

_CONTAINERS = (list, dict, set, deque)
_NOT_ON_A_DEVICE = (tf.resource, tf.variant, tf.string)
_ITEM_DEPTH = 3  # how deep to look inside an item of a container
_NAME_DEPTH = 3  # how many dicts around a container to look through for a name
_MAX_ITEMS = 1000


def size_bytes(value: Any) -> int:
    """Return the bytes of a tensor or variable on its device, or 0 for anything else."""
    if _is(value, keras.Variable):
        value = value.value
    if not _is(value, tf.Variable, EagerTensor):
        return 0
    if value.dtype in _NOT_ON_A_DEVICE or value.shape.rank is None:
        return 0
    return math.prod(int(size or 0) for size in value.shape) * int(value.dtype.size)


def _is(thing: Any, *kinds: type) -> bool:
    """Return whether the type is one of these. `isinstance` would also ask the object, and a dead weak proxy raises."""
    return issubclass(type(thing), kinds)


def _builtin_class(container: Any) -> Any:
    """Return Python's own class of a container, because Keras and users have subclasses that override its methods."""
    return next(kind for kind in _CONTAINERS if _is(container, kind))


def _length(container: Any) -> int:
    return int(_builtin_class(container).__len__(container))


def _items(container: Any) -> list[Any]:
    """Return the items, oldest first if the container has an order."""
    if _is(container, dict):
        return list(dict.values(container))
    return list(_builtin_class(container).__iter__(container))


def _attributes(thing: Any) -> dict[str, Any]:
    """Return the object's attributes without running its code; empty if it has no `__dict__`."""
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else dict(attributes)


@dataclass(frozen=True, slots=True)
class _TensorTotal:
    """The size and number of the tensors behind a name: a single tensor, or the tensors in a list or tuple."""

    size_bytes: int = 0
    count: int = 0


def _tensor_total(value: Any) -> _TensorTotal:
    if _is(value, list, tuple):
        items = (list if _is(value, list) else tuple).__iter__(value)
        sizes = [size_bytes(item) for item in items if _is(item, EagerTensor)]
        return _TensorTotal(sum(sizes), len(sizes))
    return _TensorTotal(size_bytes(value), 1) if _is(value, EagerTensor) else _TensorTotal()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The length of each container, and the tensors behind each name, at one moment."""

    lengths: dict[int, int]
    tensors_by_name: dict[tuple[int, str], _TensorTotal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A holder of tensors that grew."""

    find_name: Callable[[], str]
    """Returns the user's name for the holder; slow."""
    measure: Callable[[], int]
    """Returns the holder's current size, in items or bytes."""
    holds: Literal["tensors", "variables", "one tensor"]
    """"tensors" and "variables" grow in number; "one tensor" grows in size."""
    count: float
    """How many tensors each step adds, on average."""
    bytes_per_step: int


def take_snapshot() -> Snapshot:
    objects = gc.get_objects()
    lengths = {id(thing): _length(thing) for thing in objects if _is(thing, *_CONTAINERS)}
    totals = {(id(names), name): _tensor_total(names[name]) for names, name in _names_of_tensors(objects)}
    return Snapshot(lengths, totals)


def find_growth(before: Snapshot, steps: int, *, min_count: int) -> list[Growth]:
    """Return the holders that gained `min_count` tensors or more, and the tensors that grew, largest first."""
    objects = gc.get_objects()
    growths, named_ids = [], set()
    for names, name in _names_of_tensors(objects):
        now = _tensor_total(names[name])
        then = before.tensors_by_name.get((id(names), name), now)
        is_one_tensor = not _is(names[name], list, tuple)
        if now.size_bytes > then.size_bytes and (is_one_tensor or now.count - then.count >= min_count):
            named_ids.add(id(names[name]))
            growths.append(_growth_of_name(names, name, now, then, steps))
    # Next, containers without a name. Named ones are skipped: a list that each step replaces may reuse an address.
    for container in (thing for thing in objects if id(thing) in before.lengths and _is(thing, *_CONTAINERS)):
        added = _length(container) - before.lengths[id(container)]
        if added < min_count or id(container) in named_ids:
            continue
        if (growth := _growth_of_container(container, added, steps, min_count)) is not None:
            growths.append(growth)
    return sorted(growths, key=lambda growth: -growth.bytes_per_step)


def _growth_of_name(names: dict[str, Any], name: str, now: _TensorTotal, then: _TensorTotal, steps: int) -> Growth:
    is_one_tensor = not _is(names[name], list, tuple)
    kind = "" if is_one_tensor else f", a {'list' if _is(names[name], list) else 'tuple'},"
    # Both functions look the name up again, because the step may have assigned another object to it by then.
    return Growth(
        find_name=lambda: f"{_name_of(dict.get(names, name))}{kind}",
        measure=lambda: _tensor_total(dict.get(names, name)).size_bytes,
        holds="one tensor" if is_one_tensor else "tensors",
        count=(now.count - then.count) / steps,
        bytes_per_step=(now.size_bytes - then.size_bytes) // steps,
    )


def _growth_of_container(container: Any, added: int, steps: int, min_count: int) -> Growth | None:
    tensors = [tensor for item in _items(container)[-added:] for tensor in _tensors_inside(item, _ITEM_DEPTH)]
    if len(tensors) < min_count:
        return None
    variables = sum(_is(tensor, tf.Variable, keras.Variable) for tensor in tensors)
    return Growth(
        find_name=lambda: f"{_name_of(container)}, a {_builtin_class(container).__name__},",
        measure=lambda: _length(container),
        holds="variables" if variables * 2 > len(tensors) else "tensors",
        count=len(tensors) / steps,
        bytes_per_step=sum(map(size_bytes, tensors)) // steps,
    )


def _tensors_inside(item: Any, depth: int) -> Iterator[Any]:
    if size_bytes(item):
        yield item
        return
    if not depth:
        return
    parts: list[Any] = []
    if _is(item, *_CONTAINERS):
        parts = _items(item)
    elif _is(item, tuple):
        parts = list(tuple.__iter__(item))
    elif user_frames.is_user_class(type(item)):
        parts = list(_attributes(item).values())
    for part in parts[:_MAX_ITEMS]:
        yield from _tensors_inside(part, depth - 1)


def _names_of_tensors(objects: list[Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each attribute or global variable that is a tensor or a list of tensors: its namespace and its name."""
    kinds = (EagerTensor, list, tuple)
    values = [thing for thing in objects if _is(thing, *kinds) and _tensor_total(thing).size_bytes]
    namespaces: dict[int, dict[str, Any]] = {}  # holds references, so that no address is reused
    for referrer in gc.get_referrers(*values) if values else ():
        names = referrer if _is(referrer, dict) else _attributes(referrer)
        if id(names) in namespaces:
            continue
        namespaces[id(names)] = names
        for name, value in list(dict.items(names)):
            if _is(name, str) and _tensor_total(value).size_bytes:
                yield names, name


def _name_of(value: Any, depth: int = _NAME_DEPTH) -> str:
    """Return the user's name for an object, such as `Model.kept`, `losses in train()` or `history['loss']`."""
    names = [*_names_on_the_stack(value), *_names_in_objects(value, depth)]
    # Prefer a public name.
    return min(names, key=lambda name: "._" in name, default="something")


def _names_on_the_stack(value: Any) -> Iterator[str]:
    for frame in user_frames.current_frames():
        function = "" if frame.f_code.co_name == "<module>" else f" in {frame.f_code.co_name}()"
        yield from (f"{name}{function}" for name, local in list(frame.f_locals.items()) if local is value)


def _names_in_objects(value: Any, depth: int) -> Iterator[str]:
    for referrer in gc.get_referrers(value):
        if isinstance(referrer, dict):
            yield from _names_in_dict(referrer, value, depth)
        elif isinstance(referrer, CellType):
            yield from _names_in_closures(referrer)
        else:
            yield from _attribute_names(referrer, value)


def _names_in_dict(names: dict[Any, Any], value: Any, depth: int) -> Iterator[str]:
    keys = [key for key, entry in list(dict.items(names)) if entry is value]
    if not keys:
        return
    if "__builtins__" in names and "__name__" in names:
        module = "" if names["__name__"] == "__main__" else f"{names['__name__']}."
        yield f"{module}{keys[0]}"
        return
    # The dict of a class can't be compared by identity, because the class exposes only a view of it.
    owners = [one for one in gc.get_referrers(names) if isinstance(one, type) or _attributes(one) is names]
    attributes = [name for owner in owners for name in _attribute_names(owner, value)]
    if attributes:
        yield attributes[0]
    elif depth:
        key = repr(keys[0]) if isinstance(keys[0], str | int) else "..."
        yield f"{_name_of(names, depth - 1)}[{key}]"


def _attribute_names(owner: Any, value: Any) -> Iterator[str]:
    kind = owner if isinstance(owner, type) else type(owner)
    yield from (f"{kind.__name__}.{name}" for name, entry in list(_attributes(owner).items()) if entry is value)


def _names_in_closures(cell: CellType) -> Iterator[str]:
    for closure in gc.get_referrers(cell):
        if not isinstance(closure, tuple):
            continue
        for function in gc.get_referrers(closure):
            if not isinstance(function, FunctionType) or function.__closure__ is not closure:
                continue
            if user_frames.is_user_file(function.__code__.co_filename):  # our own closures refer to the value too
                index = next(index for index, each in enumerate(closure) if each is cell)
                yield f"{function.__code__.co_freevars[index]} in {function.__name__}()"
