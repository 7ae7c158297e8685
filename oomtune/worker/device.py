"""Giving TensorFlow its device and its limit, before the first op of the process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from oomtune.domain import WorkOrder
from oomtune.errors import NoSuchDevice

_MIB = 1024**2
DUMP_PREFIX = "dump"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What TensorFlow is told: environment variables, and what only its own calls can set."""

    environment: dict[str, str]
    gpu_index: int | None = None
    gpu_limit_mib: int | None = None
    retry_allocation: bool = True


def options(order: WorkOrder) -> Options:
    """The options for an order's device; nothing is applied."""
    limit_mib = max(1, order.budget.limit_bytes // _MIB)
    if order.device.kind == "cpu":
        return Options(
            environment={
                "CUDA_VISIBLE_DEVICES": "-1",
                "TF_CPU_ALLOCATOR_USE_BFC": "1",
                "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib),
                "TF_BFC_MEMORY_DUMP": str(Path(order.scratch) / DUMP_PREFIX),
            }
        )
    asynchronous = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"} if order.device.allocator == "cuda_malloc_async" else {}
    return Options(
        environment={"TF_CPU_ALLOCATOR_USE_BFC": "0", **asynchronous},
        gpu_index=order.device.index,
        gpu_limit_mib=limit_mib,
        retry_allocation=False,
    )


def session_config(chosen: Options) -> tf.compat.v1.ConfigProto:
    """The allocator would wait ten seconds for each failed request; on a GPU this turns that off."""
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.experimental.disallow_retry_on_allocation_failure = not chosen.retry_allocation
    return config


def prepare(order: WorkOrder) -> None:
    """Apply the options. After this, and not before, TensorFlow may be used."""
    chosen = options(order)
    os.environ.update(chosen.environment)
    if chosen.gpu_index is None:
        return
    tf.compat.v1.enable_eager_execution(config=session_config(chosen))
    cards = tf.config.list_physical_devices("GPU")
    if chosen.gpu_index >= len(cards):
        raise NoSuchDevice(f"TensorFlow sees no GPU {chosen.gpu_index} in the trial's process")
    card = cards[chosen.gpu_index]
    tf.config.set_visible_devices(card, "GPU")
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=chosen.gpu_limit_mib)
    tf.config.set_logical_device_configuration(card, [limit])


def memory(order: WorkOrder) -> tuple[int, int]:
    """Bytes in use now, and the most since the statistics were last reset."""
    info = tf.config.experimental.get_memory_info(_name(order))
    return int(info["current"]), int(info["peak"])


def reset_peak(order: WorkOrder) -> None:
    tf.config.experimental.reset_memory_stats(_name(order))


def _name(order: WorkOrder) -> str:
    return "CPU:0" if order.device.kind == "cpu" else "GPU:0"
