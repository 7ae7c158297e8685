"""Ends a process when its parent ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int, death_signal: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to end this process with its parent; where it can't, check for the parent every second."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    else:
        threading.Thread(target=_exit_after, args=(parent_pid,), daemon=True).start()
    if os.getppid() != parent_pid:  # the parent ended before the request to the kernel
        os._exit(1)


def _exit_after(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(1)
    os._exit(1)
