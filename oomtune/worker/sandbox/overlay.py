"""Where the user's code writes in a trial: into a folder of the trial's own, whatever path it names.

What it opens for writing, makes, renames or removes by Python's own means is redirected there, and what it then reads
back is found there. All else that it reads is the user's own. Code that writes by other means meets the fence.
"""

from __future__ import annotations

import builtins
import io
import os
import pathlib
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from oomtune.worker.sandbox.library_writes import redirect_libraries

_NOT_FILES = ("/dev/", "/proc/")


class Overlay:
    """A folder that stands in for the whole file system as far as writing goes."""

    def __init__(self, root: Path, ours: Iterable[Path]) -> None:
        self.root = root
        self.ours = tuple(f"{folder}{os.sep}" for folder in ours)
        root.mkdir(parents=True, exist_ok=True)

    def to_read(self, path: Any) -> Any:
        """Where to find a file: here if it was written here, where the script says otherwise."""
        mapped = self._mapped(path)
        return mapped if mapped is not None and os.path.lexists(mapped) else path

    def written(self, path: Any) -> Any:
        """What may really be changed of what the script means by this path; None when that is the user's own."""
        mapped = self._mapped(path)
        if mapped is None:
            return path
        return mapped if os.path.lexists(mapped) else None

    def to_write(self, path: Any, *, keep: bool = False) -> Any:
        """Where to write a file; with `keep`, a copy of what is there now is made first."""
        mapped = self._mapped(path)
        if mapped is None:
            return path
        _real["makedirs"](os.path.dirname(mapped), exist_ok=True)  # noqa: PTH120 - Path would come back to us
        if keep and not os.path.lexists(mapped):
            if os.path.isfile(path):  # noqa: PTH113
                shutil.copyfile(path, mapped)
            elif os.path.isdir(path):  # noqa: PTH112
                shutil.copytree(path, mapped)
        return mapped

    def _mapped(self, path: Any) -> str | None:
        if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
            return None  # a descriptor
        if "://" in os.fsdecode(path):
            return None  # not on this machine
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are not followed
        if text.startswith((*_NOT_FILES, *self.ours)):
            return None
        return str(self.root) + text


_real: dict[str, Callable[..., Any]] = {}
_OF_OS = (
    "open", "mkdir", "makedirs", "remove", "unlink", "rmdir", "rename", "replace", "stat", "lstat", "access", "chdir",
    "listdir", "scandir", "chmod", "utime", "symlink", "link",
)  # fmt: skip


def redirect(scratch: Path, *ours: Path) -> None:
    """From here on this process writes below `scratch`, and folders that are our own, as far as Python, TensorFlow and
    Keras do the writing."""
    own = scratch / f"process-{os.getpid()}"  # a climb's sizes share the trial's folder, one after the other
    overlay = Overlay(own / "written", (scratch, *ours))
    sys.dont_write_bytecode = True
    temporary = own / "temporary"
    temporary.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    _real.update({name: getattr(os, name) for name in _OF_OS})
    _redirect_opening(overlay)
    _redirect_looking(overlay)
    _redirect_changing(overlay)
    _redirect_removing_trees(overlay)
    redirect_libraries(overlay.to_read, overlay.to_write)
    _redirect_old_pathlib()


def _redirect_opening(overlay: Overlay) -> None:
    real_open = io.open

    def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        writes = any(letter in mode for letter in "wax+")
        chosen = overlay.to_write(file, keep="w" not in mode) if writes else overlay.to_read(file)
        return real_open(chosen, mode, *args, **kwargs)

    def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        chosen = overlay.to_write(path, keep=not flags & os.O_TRUNC) if writes else overlay.to_read(path)
        return int(_real["open"](chosen, flags, *args, **kwargs))

    def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
        _real["mkdir"](overlay.to_write(path), *args, **kwargs)

    builtins.open = io.open = open_
    os.open, os.mkdir = os_open, mkdir


def _redirect_looking(overlay: Overlay) -> None:
    def looking(name: str) -> Callable[..., Any]:
        def look(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            return _real[name](overlay.to_read(path), *args, **kwargs)

        return look

    def listdir(path: Any = ".") -> list[Any]:
        """What lies in the user's folder, and what was written into it here."""
        written = overlay.written(path)
        if written is None or written is path:
            return list(_real["listdir"](path))
        return sorted({*_real["listdir"](written), *(_real["listdir"](path) if _is_users_folder(path) else ())})

    def scandir(path: Any = ".") -> Any:
        # A folder that is the user's too is shown as it is there.
        return _real["scandir"](path if _is_users_folder(path) else overlay.to_read(path))

    for name in ("stat", "lstat", "access", "chdir"):
        setattr(os, name, looking(name))
    os.listdir, os.scandir = listdir, scandir


def _is_users_folder(path: Any) -> bool:
    try:
        return stat.S_ISDIR(_real["stat"](path).st_mode)
    except OSError:
        return False


def _redirect_changing(overlay: Overlay) -> None:
    def changing(name: str) -> Callable[..., None]:
        def change(path: Any, *args: Any, **kwargs: Any) -> None:
            """Only what was written here is changed; of the user's own, nothing."""
            written = overlay.written(path)
            if written is not None and kwargs.get("dir_fd") is None:
                _real[name](written, *args, **kwargs)

        return change

    def renaming(name: str) -> Callable[..., None]:
        def rename(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
            keep = name in ("rename", "replace")
            _real[name](overlay.to_write(src, keep=True) if keep else src, overlay.to_write(dst), *args, **kwargs)

        return rename

    for name in ("remove", "unlink", "rmdir", "chmod", "utime"):
        setattr(os, name, changing(name))
    for name in ("rename", "replace", "symlink", "link"):
        setattr(os, name, renaming(name))


def _redirect_removing_trees(overlay: Overlay) -> None:
    real_remove_tree = shutil.rmtree

    def remove_tree(path: Any, *_args: Any, **_kwargs: Any) -> None:
        written = overlay.written(path)
        if written is None:
            return
        ours = {name: getattr(os, name) for name in _OF_OS}
        for name in _OF_OS:  # it works with descriptors of folders, which have no path to redirect
            setattr(os, name, _real[name])
        try:
            real_remove_tree(written, ignore_errors=True)
        finally:
            for name, function in ours.items():
                setattr(os, name, function)

    shutil.rmtree = remove_tree  # type: ignore[assignment]


def _redirect_old_pathlib() -> None:
    """Up to Python 3.10 paths keep functions of `os` of their own."""
    accessor = getattr(pathlib, "_NormalAccessor", None)
    for name in _OF_OS if accessor is not None else ():
        if hasattr(accessor, name):
            setattr(accessor, name, staticmethod(io.open if name == "open" else getattr(os, name)))
