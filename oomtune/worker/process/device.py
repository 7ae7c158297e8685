"""Giving TensorFlow its device and its limit, before the first op of the process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from oomtune.domain import WorkOrder
from oomtune.errors import NoSuchDevice
from oomtune.keras.setup import use_card
from oomtune.units import MIB

DUMP_PREFIX = "dump"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What TensorFlow is told: environment variables, and what only its own calls can set."""

    environment: dict[str, str]
    gpu_index: int | None = None
    gpu_limit_mib: int | None = None
    """None where memory grows as it is used: TensorFlow takes no limit then."""
    retry_allocation: bool = True


def limit_mib(order: WorkOrder) -> int:
    """TensorFlow takes limits in whole MiB."""
    return max(1, order.budget.limit_bytes // MIB)


def options(order: WorkOrder) -> Options:
    """The options for an order's device; nothing is applied."""
    dumps = {"TF_BFC_MEMORY_DUMP": str(Path(order.scratch) / DUMP_PREFIX)}
    if order.device.kind == "cpu":
        return Options(
            environment={
                "CUDA_VISIBLE_DEVICES": "-1",
                "TF_CPU_ALLOCATOR_USE_BFC": "1",
                "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib(order)),
                **dumps,
            }
        )
    asynchronous = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"} if order.device.allocator == "cuda_malloc_async" else {}
    return Options(
        environment={"TF_CPU_ALLOCATOR_USE_BFC": "0", **dumps, **asynchronous},
        gpu_index=order.device.index,
        gpu_limit_mib=None if order.device.memory_growth else limit_mib(order),
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
    # Where its memory grows nothing holds it to the limit but the peak that is measured.
    use_card(cards[chosen.gpu_index], chosen.gpu_limit_mib, tf.config)


def memory(order: WorkOrder) -> tuple[int, int]:
    """Bytes in use now, and the most since the statistics were last reset."""
    info = tf.config.experimental.get_memory_info(_name(order))
    return int(info["current"]), int(info["peak"])


def reset_peak(order: WorkOrder) -> None:
    tf.config.experimental.reset_memory_stats(_name(order))


def _name(order: WorkOrder) -> str:
    return "CPU:0" if order.device.kind == "cpu" else "GPU:0"
