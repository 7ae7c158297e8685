"""Who holds tensors: containers that get longer with them, names whose tensor or list is a larger one, and these names.

All of it looks through every object that Python's garbage collector knows, which takes a tenth of a second or more:
it is done only when memory was seen to climb. The objects themselves are not asked, not even how long they are: a
method of the user's that raises must not fail a trial.
"""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from oomtune.worker.watch import user_frames as users
from oomtune.worker.watch.naming import attributes, name_of

_CONTAINERS = (list, dict, set, deque)
_NOT_ON_A_DEVICE = (tf.resource, tf.variant, tf.string)
_DEPTH = 3  # how far inside an item, or outside a container, is looked
_MOST_ITEMS = 1000


def _is(thing: Any, *kinds: type) -> bool:
    """By its type alone: `isinstance` also asks the object, and a proxy of what is gone raises."""
    return issubclass(type(thing), kinds)


def _base(container: Any) -> Any:
    """Python's own class of it: Keras and users put lists and dicts of their own in place of these."""
    return next(kind for kind in _CONTAINERS if _is(container, kind))


def _length(container: Any) -> int:
    return int(_base(container).__len__(container))


def _items(container: Any) -> list[Any]:
    """What it holds, the oldest first where there is an order."""
    return list(dict.values(container)) if _is(container, dict) else list(_base(container).__iter__(container))


def size_bytes(value: Any) -> int:
    """What a tensor or a variable takes on its device; nothing for what is neither."""
    if _is(value, keras.Variable):
        value = value.value
    if not _is(value, tf.Variable, tf.__internal__.EagerTensor):
        return 0
    if value.dtype in _NOT_ON_A_DEVICE or value.shape.rank is None:
        return 0
    return math.prod(int(size or 0) for size in value.shape) * int(value.dtype.size)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a tensor takes, or the tensors in a list or tuple, and how many they are; nothing for anything else."""

    size_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How long each container was, and how large each tensor, or list of them, that stands under a name."""

    lengths: dict[int, int]
    named: dict[tuple[int, str], _Held]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Something that grew by tensors. `measure` tells how far it has come by now; to name it takes a while."""

    named: Callable[[], str]
    measure: Callable[[], int]
    holds: str
    """`tensors` or `variables` of which there are more, or `one tensor` that is larger."""
    count: float
    """How many more of them, on average, with each step."""
    bytes_per_step: int


def snapshot() -> Snapshot:
    objects = gc.get_objects()
    lengths = {id(thing): _length(thing) for thing in objects if _is(thing, *_CONTAINERS)}
    named = {(id(names), name): _held(names[name]) for names, name in _named(objects)}
    return Snapshot(lengths, named)


def grown(before: Snapshot, steps: int, *, least: int) -> list[Growth]:
    """What has grown in these steps since, by so many tensors at least or in size, the largest first."""
    objects = gc.get_objects()
    found, told = [], set()
    for names, name in _named(objects):
        now = _held(names[name])
        then = before.named.get((id(names), name), now)
        one = not _is(names[name], list, tuple)
        if now.size_bytes > then.size_bytes and (one or now.count - then.count >= least):
            told.add(id(names[name]))
            found.append(_larger(names, name, now, then, steps))
    # Only what no name stands for: a list that each step replaces may have the address of one that is gone.
    for container in (thing for thing in objects if id(thing) in before.lengths and _is(thing, *_CONTAINERS)):
        more = _length(container) - before.lengths[id(container)]
        if more < least or id(container) in told:
            continue
        if (growth := _longer(container, more, steps, least)) is not None:
            found.append(growth)
    return sorted(found, key=lambda growth: -growth.bytes_per_step)


def _longer(container: Any, more: int, steps: int, least: int) -> Growth | None:
    held = [tensor for item in _items(container)[-more:] for tensor in _inside(item, _DEPTH)]
    if len(held) < least:
        return None
    variables = sum(_is(each, tf.Variable, keras.Variable) for each in held)
    return Growth(
        named=lambda: f"{name_of(container)}, a {_base(container).__name__},",
        measure=lambda: _length(container),
        holds="variables" if variables * 2 > len(held) else "tensors",
        count=len(held) / steps,
        bytes_per_step=sum(map(size_bytes, held)) // steps,
    )


def _inside(item: Any, depth: int) -> Iterator[Any]:
    if size_bytes(item):
        yield item
        return
    if not depth:
        return
    within: list[Any] = []
    if _is(item, *_CONTAINERS):
        within = _items(item)
    elif _is(item, tuple):
        within = list(tuple.__iter__(item))
    elif users.is_users_class(type(item)):
        within = list(attributes(item).values())
    for each in within[:_MOST_ITEMS]:
        yield from _inside(each, depth - 1)


def _held(value: Any) -> _Held:
    if _is(value, list, tuple):
        items = (list if _is(value, list) else tuple).__iter__(value)
        sizes = [size_bytes(item) for item in items if _is(item, tf.__internal__.EagerTensor)]
        return _Held(sum(sizes), len(sizes))
    return _Held(size_bytes(value), 1) if _is(value, tf.__internal__.EagerTensor) else _Held(0, 0)


def _named(objects: list[Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each attribute or global variable that is a tensor or a list of them: the dict it stands in, its name there."""
    kinds = (tf.__internal__.EagerTensor, list, tuple)
    held = [thing for thing in objects if _is(thing, *kinds) and _held(thing).size_bytes]
    seen: dict[int, dict[str, Any]] = {}  # kept, so that no address is used twice
    for holder in gc.get_referrers(*held) if held else ():
        names = holder if _is(holder, dict) else attributes(holder)
        if id(names) not in seen:
            seen[id(names)] = names
            yield from ((names, name) for name, value in list(dict.items(names)) if _is_named(name, value))


def _is_named(name: object, value: object) -> bool:
    return _is(name, str) and _held(value).size_bytes > 0


def _larger(names: dict[str, Any], name: str, now: _Held, then: _Held, steps: int) -> Growth:
    """By its name, whatever stands there by then."""
    one = not _is(names[name], list, tuple)
    kind = "" if one else f", a {'list' if _is(names[name], list) else 'tuple'},"
    return Growth(
        named=lambda: f"{name_of(dict.get(names, name))}{kind}",
        measure=lambda: _held(dict.get(names, name)).size_bytes,
        holds="one tensor" if one else "tensors",
        count=(now.count - then.count) / steps,
        bytes_per_step=(now.size_bytes - then.size_bytes) // steps,
    )
