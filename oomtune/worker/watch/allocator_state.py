"""The allocator's own account of the moment when it found no room.

TensorFlow writes a dump at every request that it can't meet. Each trial has a folder for them, and a step that came to
its end removes what is there: what is left belongs to the failure.
"""

from __future__ import annotations

import math
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import bfc_memory_map_pb2

from oomtune.domain import AllocatorState, WorkOrder
from oomtune.units import MIB
from oomtune.worker.process.device import DUMP_PREFIX, limit_mib


def dumps(order: WorkOrder) -> list[Path]:
    """The dumps of the device's allocator; on a GPU the host's pinned memory has one of its own."""
    ours = [dump for dump in Path(order.scratch).glob(f"{DUMP_PREFIX}_*") if "host" not in dump.name]
    return sorted(ours, key=lambda dump: dump.suffix)


def forgive(order: WorkOrder) -> None:
    """A step came to its end, so whatever allocation failed in it succeeded later or did not matter."""
    for dump in dumps(order):
        dump.unlink(missing_ok=True)


def at_failure(order: WorkOrder) -> AllocatorState | None:
    """The allocator at the last request that it could not meet; None when it met all."""
    for path in reversed(dumps(order)):
        dump = bfc_memory_map_pb2.MemoryDump()
        try:
            dump.ParseFromString(path.read_bytes())
        except (DecodeError, FileNotFoundError):
            continue  # still being written
        return _state(dump, limit_mib(order) * MIB)
    return None


def _state(dump: bfc_memory_map_pb2.MemoryDump, limit_bytes: int) -> AllocatorState:
    # What it has not yet taken from the system is a piece that it could still give.
    not_taken = limit_bytes - sum(chunk.size for chunk in dump.chunk)
    metric = dump.stats.fragmentation_metric
    return AllocatorState(
        allocator=dump.allocator_name,
        limit_bytes=limit_bytes,
        in_use_bytes=dump.stats.bytes_in_use,
        largest_free_bytes=max(0, not_taken, *(chunk.size for chunk in dump.chunk if not chunk.in_use)),
        # Not the largest piece in use: a piece may be up to twice what was asked for.
        largest_held_bytes=max((chunk.requested_size for chunk in dump.chunk if chunk.in_use), default=0),
        # Where nothing is free there is nothing to measure, and TensorFlow divides by it.
        fragmentation=round(metric, 3) if math.isfinite(metric) else 0.0,
    )
