"""Ending an out-of-memory trial on the CPU at once, instead of sitting through the allocator's waits.

TensorFlow's allocator waits up to ten seconds for each request it can't meet, and several ops fail in turn, so that an
out-of-memory step can take minutes. It does write a dump at the first failed attempt. A dump alone may be an attempt
that succeeded later; but a dump and no thread of the process running or waiting for a disk, for a while, means that
nothing is left that could give memory back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from oomtune.domain import WorkOrder
from oomtune.units import MIB
from oomtune.worker.watch import allocator_state as allocator

_LOOK_EVERY_S = 0.02
_ASLEEP_FOR_S = 0.3


class AllocatorStalled(Exception):
    """Every thread waits for memory that none of them can free."""


def watch(order: WorkOrder, on_stall: Callable[[AllocatorStalled], None]) -> None:
    """Look out for a stall in a thread of its own; a GPU needs none, its allocator is told not to wait."""
    if order.device.kind == "cpu" and Path("/proc/self/task").is_dir():
        threading.Thread(target=_watch, args=(order, on_stall), daemon=True).start()


def _watch(order: WorkOrder, on_stall: Callable[[AllocatorStalled], None]) -> None:
    asleep_since: float | None = None
    while True:
        time.sleep(_LOOK_EVERY_S)
        if not allocator.dumps(order) or _any_thread_busy():
            asleep_since = None
            continue
        now = time.monotonic()
        asleep_since = asleep_since or now
        if now - asleep_since >= _ASLEEP_FOR_S:
            on_stall(AllocatorStalled(_describe(order)))


def _any_thread_busy() -> bool:
    """Is any other thread running, ready to run, or waiting for a disk?"""
    own = str(threading.get_native_id())
    return any(task.name != own and _state(task) in "RD" for task in Path("/proc/self/task").iterdir())


def _state(task: Path) -> str:
    try:
        # The name in brackets may itself hold brackets and blanks; the state follows the last one.
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"  # it ended while we looked


def _describe(order: WorkOrder) -> str:
    state = allocator.at_failure(order)
    if state is None:
        return "TensorFlow's allocator found no room, and no thread was left that could free any"
    return (
        f"TensorFlow's allocator ({state.allocator}) found no room for a tensor with {state.in_use_bytes / MIB:.1f} "
        f"MiB of {state.limit_bytes / MIB:.0f} MiB in use, and no thread was left that could free any"
    )
