"""What TensorFlow's allocator holds at the peak of a step, tensor by tensor, with the op that made each.

TensorFlow's profiler records every allocation of its BFC allocator, with the op that asked for it. That is a record of
the step as it runs, not of another one made to be looked at: nothing in the graph is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

_ALLOCATED = "MemoryAllocation"
_FREED = "MemoryDeallocation"
# The allocator's events are recorded from this level on; Python calls and device kernels are of no use here.
_OPTIONS = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A piece of memory, as the allocator counts it; `op` is empty where none asked for it."""

    op: str
    size_bytes: int
    shape: str
    """Such as `[64,128]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One step: how much was in use at its peak, what of it the step itself had made, and what was made before and
    after that moment."""

    peak_bytes: int
    live: tuple[Allocation, ...]
    before: tuple[Allocation, ...]
    after: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    at: int
    kind: str
    address: int
    in_use_bytes: int
    allocation: Allocation


def start(folder: Path) -> bool:
    """Begin to record, unless the user's own code is profiling: TensorFlow has one profiler."""
    try:
        tf.profiler.experimental.start(str(folder), options=_OPTIONS)
    except tf.errors.AlreadyExistsError:
        return False
    return True


def stop(folder: Path, device_kind: str) -> Recorded | None:
    """What was recorded since `start`; None when the allocator was not seen."""
    tf.profiler.experimental.stop()
    events = sorted(
        (event for path in folder.rglob("*.xplane.pb") for event in _events(path, device_kind)),
        key=lambda event: event.at,
    )
    made = [index for index, event in enumerate(events) if event.kind == _ALLOCATED]
    if not made:
        return None
    top = max(made, key=lambda index: events[index].in_use_bytes)
    live: dict[int, Allocation] = {}
    for event in events[: top + 1]:
        if event.kind == _ALLOCATED:
            live[event.address] = event.allocation
        else:
            live.pop(event.address, None)
    return Recorded(
        peak_bytes=events[top].in_use_bytes,
        live=tuple(live.values()),
        before=tuple(events[index].allocation for index in made if index <= top),
        after=tuple(events[index].allocation for index in made if index > top),
    )


def _events(path: Path, device_kind: str) -> Iterator[_Event]:
    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    for plane in space.planes:
        names = {key: entry.name for key, entry in plane.event_metadata.items()}
        keys = {key: entry.name for key, entry in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                kind = names[event.metadata_id]
                if kind not in (_ALLOCATED, _FREED):
                    continue
                told = {keys[stat.metadata_id]: _value(stat, keys) for stat in event.stats}
                if device_kind == "cpu" or _is_cards(str(told.get("allocator_name", ""))):
                    yield _event(line.timestamp_ns * 1000 + event.offset_ps, kind, told)


def _is_cards(allocator: str) -> bool:
    """With a GPU the host has a record beside the card: `gpu_host_bfc` beside `GPU_0_bfc` or `gpu_async_0`."""
    return allocator.lower().startswith("gpu") and "host" not in allocator.lower()


def _value(stat: xplane_pb2.XStat, keys: dict[int, str]) -> str | int:
    field = stat.WhichOneof("value")
    value = getattr(stat, field)
    return keys[value] if field == "ref_value" else value


def _event(at: int, kind: str, told: dict[str, str | int]) -> _Event:
    allocation = Allocation(
        op=str(told.get("tf_op", "")), size_bytes=int(told["allocation_bytes"]), shape=str(told.get("shape", ""))
    )
    return _Event(
        at=at, kind=kind, address=int(told["addr"]), in_use_bytes=int(told["bytes_allocated"]), allocation=allocation
    )
