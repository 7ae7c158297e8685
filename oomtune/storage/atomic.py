"""Write files for a user: completely or not at all, and never over a file that oomtune did not write."""

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
# File names in a text need not be valid text themselves.
_ON_INVALID_TEXT = "backslashreplace"


def check_apart(files: Iterable[tuple[str, Path]], others: Mapping[Path, str]) -> None:
    """Raise if two files are the same, or if one of them is one of `others`.

    `files` are pairs of a flag and its file; `others` maps files to what they are."""
    owners = {os.path.realpath(path): what for path, what in others.items()}
    for flag, path in files:
        place = os.path.realpath(path)
        if place in owners:
            raise UsageProblem(f"{flag} {path} is {owners[place]}", hint=f"give another file with {flag}")
        owners[place] = f"also what {flag} writes"


def check_writable(path: Path, *, flag: str, force: bool, is_ours: Callable[[Path], bool]) -> None:
    """Raise unless a file can be written here without losing a file of the user. `flag` names the file in errors."""
    try:
        if path.is_dir():
            raise UsageProblem(f"{path} is a folder", hint=f"give a file with {flag}")
        if path.exists() and not path.is_file():
            raise UsageProblem(f"{path} is not a regular file", hint=f"give a file with {flag}")
        if path.exists() and not force and not is_ours(path):
            raise UsageProblem(
                f"{path} was not written by oomtune and was not changed",
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
    """Write a file completely or not at all: the old file stays until the new one is complete.

    A link stays a link, and the file behind it keeps its mode."""
    try:
        target = _target(path)
        _refuse_read_only(path, target)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".oomtune-")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors=_ON_INVALID_TEXT, newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            _copy_mode(temporary, target)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be written: {error.strerror}", hint=hint) from None


def _target(path: Path) -> Path:
    """Return the file behind a link, or the path itself. Raises `OSError` for a circle of links."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _refuse_read_only(path: Path, target: Path) -> None:
    """Raise if the file is read-only: replacing it would only need the permission of its folder."""
    if target.exists() and not (target.stat().st_mode & 0o222 and os.access(target, os.W_OK)):
        raise OutputNotWritable(
            f"{path} is read-only and was not changed", hint=f"chmod u+w {path}, or give another file"
        )


def _copy_mode(temporary: Path, target: Path) -> None:
    """Give the new file the mode and owner of the file it replaces, or the default mode if there is none."""
    try:
        before = target.stat()
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        return
    with contextlib.suppress(PermissionError):  # only root may change the owner
        os.chown(temporary, before.st_uid, before.st_gid)
    temporary.chmod(stat.S_IMODE(before.st_mode))


def check_appendable(path: Path, *, flag: str) -> None:
    """Raise unless the file exists and can be appended to, or can be created."""
    if not is_there(path):
        check_writable(path, flag=flag, force=False, is_ours=lambda _: True)
        return
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be written: {error.strerror}", hint=f"give a file with {flag}") from None


def append(path: Path, text: str, *, hint: str) -> None:
    """Append text to a file."""
    try:
        with path.open("a", encoding="utf-8", errors=_ON_INVALID_TEXT, newline="") as file:
            file.write(text)
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be written: {error.strerror}", hint=hint) from None


def has_mark(path: Path, mark: bytes) -> bool:
    """Return True if the file starts with a mark that only oomtune writes, or is empty."""
    with path.open("rb") as file:
        first = file.read(_FIRST_BYTES)
    return mark in first or not first
