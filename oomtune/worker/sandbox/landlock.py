"""A fence that the kernel holds: after `keep_writes_in`, this process and all it starts can make, write and remove
files in some folders only.

Linux has this for any process as Landlock, from 5.13 on. Where it is missing the fence is too, which `is_here` tells
beforehand, and only the worker's overlay keeps the files of the user's code apart.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_WRITE_FILE = 1 << 1
# Removing and making entries of every kind; then linking across folders and truncating, which later versions added.
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_ADDED = {2: 1 << 13, 3: 1 << 14}


def is_here() -> bool:
    """Can this kernel hold a fence?"""
    return sys.platform == "linux" and _version(ctypes.CDLL(None, use_errno=True)) >= 1


def keep_writes_in(*folders: Path) -> None:
    """Deny this process to make, write or remove files outside these folders, where the kernel can."""
    if not is_here():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    version = _version(libc)
    rights = _CHANGES | sum(right for since, right in _ADDED.items() if version >= since)
    handled = struct.pack("Q", rights)
    ruleset = libc.syscall(_CREATE_RULESET, handled, len(handled), 0)
    if ruleset < 0:
        return
    for folder in (*folders, Path("/dev/shm")):  # noqa: S108 - where processes share memory
        _allow(libc, ruleset, folder, rights)
    for devices in ("/dev", "/proc"):
        _allow(libc, ruleset, Path(devices), rights & (_WRITE_FILE | _ADDED[3]))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0:
        libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _version(libc: ctypes.CDLL) -> int:
    return int(libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))


def _allow(libc: ctypes.CDLL, ruleset: int, folder: Path, rights: int) -> None:
    if not folder.is_dir():
        return
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    rule = struct.pack("=Qi", rights, descriptor)
    libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(descriptor)
