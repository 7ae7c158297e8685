"""Stops this process and its children from creating, writing or removing files outside given folders.

The kernel enforces this through Landlock, in Linux from 5.13 on. Elsewhere only the overlay protects the user's files.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

from oomtune.errors import TrialCrashed

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_WRITE_FILE = 1 << 1
# Creating and removing entries of every kind. Later versions added linking across folders and truncating.
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_ADDED = {2: 1 << 13, 3: 1 << 14}


def is_available() -> bool:
    """Return whether this kernel can restrict writes."""
    return sys.platform == "linux" and _version(ctypes.CDLL(None, use_errno=True)) >= 1


def restrict_writes(*folders: Path) -> None:
    """Stop this process from creating, writing or removing files outside these folders, if the kernel can."""
    if not is_available():
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
    for folder in (Path("/dev"), Path("/proc")):
        _allow(libc, ruleset, folder, rights & (_WRITE_FILE | _ADDED[3]))
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


def explain_denial(error: PermissionError, subject: str) -> TrialCrashed | None:
    """Return the error to show if Landlock denied `subject` a write, or None if the file's own permissions did."""
    path = error.filename
    if not isinstance(path, str | bytes) or not _permits_writing(os.fsdecode(path)):
        return None
    return TrialCrashed(
        f"{subject} may not write {os.fsdecode(path)} during a trial",
        hint="writes by Python itself are redirected; other code may write only below the temporary folder",
    )


def _permits_writing(path: str) -> bool:
    """Return whether the file's own permissions allow writing; os.access ignores Landlock."""
    if os.path.lexists(path):
        return os.access(path, os.R_OK | os.W_OK)
    return os.access(Path(path).absolute().parent, os.W_OK)
