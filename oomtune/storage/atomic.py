"""Writing a file for a user: only over what is ours, and whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from oomtune.errors import OutputNotWritable, UsageProblem
from oomtune.spec.files import is_there

_FIRST_BYTES = 4096
# What becomes of a file's name in the text that is no text itself.
_NO_TEXT = "backslashreplace"


def check_apart(asked: Iterable[tuple[str, Path]], others: Mapping[Path, str]) -> None:
    """Raise when two of these files are one, or one of them is one of the others: that is never meant. Each comes with
    the flag that asks for it, the others with what they are."""
    taken = {os.path.realpath(path): what for path, what in others.items()}
    for flag, path in asked:
        place = os.path.realpath(path)
        if place in taken:
            raise UsageProblem(f"{flag} {path} is {taken[place]}", hint=f"give another file with {flag}")
        taken[place] = f"also what {flag} writes"


def check_writable(path: Path, *, flag: str, force: bool, is_ours: Callable[[Path], bool]) -> None:
    """Raise unless a file can be written here without losing anything that is not ours. `flag` is how it was asked."""
    try:
        if path.is_dir():
            raise UsageProblem(f"{path} is a folder", hint=f"give a file with {flag}")
        if path.exists() and not path.is_file():
            raise UsageProblem(f"{path} is no file that could be replaced", hint=f"give a file with {flag}")
        if path.exists() and not force and not is_ours(path):
            raise UsageProblem(
                f"{path} was not written by oomtune and is left as it is",
                hint=f"give another file with {flag}, or --force",
            )
        target = _target(path)
        _refuse_read_only(path, target)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".oomtune-"):
            pass
    except OSError as error:
        raise OutputNotWritable(
            f"{path} can't be written: {error.strerror}",
            hint=f"give a file in a folder that can be written with {flag}",
        ) from None


def write_whole(path: Path, text: str, *, hint: str) -> None:
    """Write a file whole or not at all: what was there before stays until the new one is complete.

    A link stays a link, and the file that it leads to keeps its mode."""
    try:
        target = _target(path)
        _refuse_read_only(path, target)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".oomtune-")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors=_NO_TEXT, newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            _take_after(temporary, target)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be written: {error.strerror}", hint=hint) from None


def _target(path: Path) -> Path:
    """Where a link leads; the path itself when it is none."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _refuse_read_only(path: Path, target: Path) -> None:
    """Replacing asks only for the folder's permission; whoever made the file read-only meant the file."""
    if target.exists() and not (target.stat().st_mode & 0o222 and os.access(target, os.W_OK)):
        raise OutputNotWritable(
            f"{path} is read-only and is left as it is", hint=f"chmod u+w {path}, or give another file"
        )


def _take_after(temporary: Path, target: Path) -> None:
    """Give a new file the mode and the owner of the one that it replaces; where there is none, what the umask says."""
    try:
        before = target.stat()
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        return
    with contextlib.suppress(PermissionError):  # only root may give a file away
        os.chown(temporary, before.st_uid, before.st_gid)
    temporary.chmod(stat.S_IMODE(before.st_mode))


def check_appendable(path: Path, *, flag: str) -> None:
    """Raise unless text can be added to what this file holds, or it can be made."""
    if not is_there(path):
        check_writable(path, flag=flag, force=False, is_ours=lambda _: True)
        return
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be written: {error.strerror}", hint=f"give a file with {flag}") from None


def append(path: Path, text: str, *, hint: str) -> None:
    """Add to a file; what it held before stays."""
    try:
        with path.open("a", encoding="utf-8", errors=_NO_TEXT, newline="") as file:
            file.write(text)
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be written: {error.strerror}", hint=hint) from None


def has_mark(path: Path, mark: bytes) -> bool:
    """Does this file begin with what only oomtune writes, or is it empty?"""
    with path.open("rb") as file:
        first = file.read(_FIRST_BYTES)
    return mark in first or not first
