"""The device as TensorFlow sees it: its cards, the memory limit, and the allocator's reports.

TensorFlow's allocator writes a dump for every request that it can't meet. Each trial has a folder for these dumps, and
every completed step removes them. The remaining dumps belong to the failure.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import bfc_memory_map_pb2

from oomtune.domain import AllocatorState, WorkOrder
from oomtune.errors import NoSuchDevice
from oomtune.keras.setup import use_card
from oomtune.units import MIB

_DUMP_PREFIX = "dump"
_BUS_ID = re.compile(r"pci bus id: ([0-9a-fA-F:.]+)")


def describe_machine() -> dict[str, object]:
    """Return the versions, whether this build has CUDA, and each GPU with its memory limit."""
    build = tf.sysconfig.get_build_info()
    cards = tf.config.list_physical_devices("GPU")
    entries = _local_gpus() if cards else []
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "cuda_build": bool(build.get("is_cuda_build") or build.get("is_rocm_build")),
        "cuda_version": build.get("cuda_version"),
        "gpus": [_describe_card(card, entry) for card, entry in zip(cards, entries, strict=True)],
    }


def _describe_card(card: tf.config.PhysicalDevice, entry: Any) -> dict[str, object]:
    details = tf.config.experimental.get_device_details(card)
    bus_id = _BUS_ID.search(entry.physical_device_desc)
    return {
        "name": details.get("device_name") or card.name,
        "memory_limit_bytes": entry.memory_limit,
        "bus_id": bus_id[1].lower() if bus_id else "",
    }


def _local_gpus() -> list[Any]:
    """Return TensorFlow's entries for the GPUs, which hold their memory limits and bus ids."""
    from oomtune.keras.private_tensorflow import list_local_devices

    return [entry for entry in list_local_devices() if entry.device_type == "GPU"]


def set_up(order: WorkOrder) -> None:
    """Give TensorFlow its device and limit. Call this before the first op of the process."""
    os.environ["TF_BFC_MEMORY_DUMP"] = str(Path(order.scratch) / _DUMP_PREFIX)
    if order.device.kind == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
        os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(_limit_mib(order))
        return
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "0"
    if order.device.allocator == "cuda_malloc_async":
        os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"
    # Without this, the allocator waits ten seconds for each request that it can't meet.
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.experimental.disallow_retry_on_allocation_failure = True
    tf.compat.v1.enable_eager_execution(config=config)
    cards = tf.config.list_physical_devices("GPU")
    if order.device.index >= len(cards):
        raise NoSuchDevice(f"TensorFlow sees no GPU {order.device.index} in the trial's process")
    # TensorFlow takes no limit if memory grows on demand. Then only the measured peak enforces the limit.
    use_card(cards[order.device.index], None if order.device.memory_growth else _limit_mib(order), tf.config)


def _limit_mib(order: WorkOrder) -> int:
    """Return the limit in whole MiB, the only unit that TensorFlow takes."""
    return max(1, order.budget.limit_bytes // MIB)


def memory_bytes(order: WorkOrder) -> tuple[int, int]:
    """Return the bytes in use now, and the peak since the statistics were last reset."""
    info = tf.config.experimental.get_memory_info(_device_name(order))
    return int(info["current"]), int(info["peak"])


def peak_bytes(order: WorkOrder) -> int:
    return memory_bytes(order)[1]


def reset_peak(order: WorkOrder) -> None:
    tf.config.experimental.reset_memory_stats(_device_name(order))


def _device_name(order: WorkOrder) -> str:
    return "CPU:0" if order.device.kind == "cpu" else "GPU:0"


def failure_dumps(order: WorkOrder) -> list[Path]:
    """Return the dumps of the device's allocator, oldest first, without those for a GPU's pinned host memory."""
    dumps = [dump for dump in Path(order.scratch).glob(f"{_DUMP_PREFIX}_*") if "host" not in dump.name]
    return sorted(dumps, key=lambda dump: dump.suffix)


def discard_dumps(order: WorkOrder) -> None:
    """Remove all dumps. A step completed, so any allocation that failed in it was retried or did not matter."""
    for dump in failure_dumps(order):
        dump.unlink(missing_ok=True)


def allocator_at_failure(order: WorkOrder) -> AllocatorState | None:
    """Return the allocator's state at its last failed request, or None if it met every request."""
    for path in reversed(failure_dumps(order)):
        dump = bfc_memory_map_pb2.MemoryDump()
        try:
            dump.ParseFromString(path.read_bytes())
        except (DecodeError, FileNotFoundError):
            continue  # TensorFlow is still writing it
        return _allocator_state(dump, _limit_mib(order) * MIB)
    return None


def _allocator_state(dump: bfc_memory_map_pb2.MemoryDump, limit_bytes: int) -> AllocatorState:
    # Memory that the allocator has not yet taken from the system counts as one more free piece.
    untaken_bytes = limit_bytes - sum(chunk.size for chunk in dump.chunk)
    fragmentation = dump.stats.fragmentation_metric
    return AllocatorState(
        allocator=dump.allocator_name,
        limit_bytes=limit_bytes,
        in_use_bytes=dump.stats.bytes_in_use,
        largest_free_bytes=max(0, untaken_bytes, *(chunk.size for chunk in dump.chunk if not chunk.in_use)),
        # The requested size, because a chunk may be up to twice as large as its tensor.
        largest_held_bytes=max((chunk.requested_size for chunk in dump.chunk if chunk.in_use), default=0),
        # TensorFlow divides by the free memory, which may be zero.
        fragmentation=round(fragmentation, 3) if math.isfinite(fragmentation) else 0.0,
    )
