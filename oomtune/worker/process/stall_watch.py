"""Ends an out-of-memory trial on the CPU at once.

TensorFlow's allocator waits up to ten seconds for each request that it can't meet, and several ops fail in turn, so an
out-of-memory step can take minutes. The allocator writes a dump at the first failed attempt, but that attempt may still
succeed later. Once a dump exists and no thread of the process has run or waited for a disk for a while, no thread can
free memory any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from oomtune.domain import WorkOrder
from oomtune.units import MIB
from oomtune.worker.process import device

_CHECK_EVERY_S = 0.02
_ASLEEP_FOR_S = 0.3


class AllocatorStalled(Exception):
    """Every thread waits for memory, and none can free any."""


def start(order: WorkOrder, on_stall: Callable[[AllocatorStalled], None]) -> None:
    """Watch for a stall in a background thread. On a GPU, `device.set_up` turns waiting off, so no stall can occur."""
    if order.device.kind == "cpu" and Path("/proc/self/task").is_dir():
        threading.Thread(target=_watch, args=(order, on_stall), daemon=True).start()


def _watch(order: WorkOrder, on_stall: Callable[[AllocatorStalled], None]) -> None:
    asleep_since: float | None = None
    while True:
        time.sleep(_CHECK_EVERY_S)
        if not device.failure_dumps(order) or _any_thread_busy():
            asleep_since = None
            continue
        now = time.monotonic()
        asleep_since = asleep_since or now
        if now - asleep_since >= _ASLEEP_FOR_S:
            on_stall(AllocatorStalled(_describe(order)))


def _any_thread_busy() -> bool:
    """Return whether another thread is running, ready to run, or waiting for a disk."""
    own = str(threading.get_native_id())
    return any(task.name != own and _state(task) in "RD" for task in Path("/proc/self/task").iterdir())


def _state(task: Path) -> str:
    try:
        # The thread's name, in brackets, may itself hold brackets and blanks; the state follows the last bracket.
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"  # the thread ended meanwhile


def _describe(order: WorkOrder) -> str:
    state = device.allocator_at_failure(order)
    if state is None:
        return "TensorFlow's allocator found no room, and no thread was left that could free any"
    return (
        f"TensorFlow's allocator ({state.allocator}) found no room for a tensor with {state.in_use_bytes / MIB:.1f} "
        f"MiB of {state.limit_bytes / MIB:.0f} MiB in use, and no thread was left that could free any"
    )
