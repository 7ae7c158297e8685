"""Redirects all writes of the user's code during a trial into the trial's own folder.

When the code creates, writes, renames or removes a file through Python, the change goes to that folder, and later reads
come from there. All other reads go to the original path. Landlock denies writes by any other means.
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

from oomtune.worker.sandbox import landlock
from oomtune.worker.sandbox.library_writes import redirect_libraries, with_mapped_path

_NOT_FILES = ("/dev/", "/proc/")
# A GPU's driver caches compiled kernels here; without this folder each trial would compile them again.
_DRIVER_CACHE = ".nv"
_real: dict[str, Callable[..., Any]] = {}
_OS_FUNCTIONS = (
    "open", "mkdir", "makedirs", "remove", "unlink", "rmdir", "rename", "replace", "stat", "lstat", "access", "chdir",
    "listdir", "scandir", "chmod", "utime", "symlink", "link",
)  # fmt: skip


def confine_writes(scratch: Path, *own_folders: Path) -> None:
    """Let this process write only below its scratch folder and `own_folders` from here on."""
    _redirect_writes(scratch, *own_folders)
    home = os.environ.get("HOME")
    landlock.restrict_writes(scratch, *own_folders, *([Path(home, _DRIVER_CACHE)] if home else []))


def _redirect_writes(scratch: Path, *own_folders: Path) -> None:
    """Redirect what Python, TensorFlow and Keras write."""
    own = scratch / f"process-{os.getpid()}"  # the sizes of a climb share the scratch folder, one after the other
    overlay = Overlay(own / "written", (scratch, *own_folders))
    sys.dont_write_bytecode = True
    temporary = own / "temporary"
    temporary.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    _real.update({name: getattr(os, name) for name in _OS_FUNCTIONS})
    _redirect_opening(overlay)
    _redirect_looking(overlay)
    _redirect_changing(overlay)
    _redirect_removing_trees(overlay)
    redirect_libraries(overlay.to_read, overlay.to_write)
    _redirect_old_pathlib()


class Overlay:
    """A folder that receives all writes and mirrors the paths that they were meant for."""

    def __init__(self, root: Path, own_folders: Iterable[Path]) -> None:
        self.root = root
        self.own_prefixes = tuple(f"{folder}{os.sep}" for folder in own_folders)
        root.mkdir(parents=True, exist_ok=True)

    def to_read(self, path: Any) -> Any:
        """Return where to read the file: in the overlay if it exists there, else the path itself."""
        mapped = self._mapped(path)
        return mapped if mapped is not None and os.path.lexists(mapped) else path

    def to_change(self, path: Any) -> Any:
        """Return the overlay's path to change in place of this one, or None if only the user's own file exists."""
        mapped = self._mapped(path)
        if mapped is None:
            return path
        return mapped if os.path.lexists(mapped) else None

    def to_write(self, path: Any, *, keep: bool = False) -> Any:
        """Return where to write the file; with `keep`, copy the current content there first."""
        mapped = self._mapped(path)
        if mapped is None:
            return path
        _real["makedirs"](os.path.dirname(mapped), exist_ok=True)  # noqa: PTH120 - Path would call the redirected function
        if keep and not os.path.lexists(mapped):
            if os.path.isfile(path):  # noqa: PTH113
                shutil.copyfile(path, mapped)
            elif os.path.isdir(path):  # noqa: PTH112
                shutil.copytree(path, mapped)
        return mapped

    def _mapped(self, path: Any) -> str | None:
        if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
            return None  # a file descriptor
        if "://" in os.fsdecode(path):
            return None  # not on this machine
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are not followed
        if text.startswith((*_NOT_FILES, *self.own_prefixes)):
            return None
        return str(self.root) + text


def _redirect_opening(overlay: Overlay) -> None:
    real_open = io.open

    def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        writes = any(letter in mode for letter in "wax+")
        path = overlay.to_write(file, keep="w" not in mode) if writes else overlay.to_read(file)
        return real_open(path, mode, *args, **kwargs)

    def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        path = overlay.to_write(path, keep=not flags & os.O_TRUNC) if writes else overlay.to_read(path)
        return int(_real["open"](path, flags, *args, **kwargs))

    builtins.open = io.open = open_
    os.open = os_open
    os.mkdir = with_mapped_path(_real["mkdir"], overlay.to_write)


def _redirect_looking(overlay: Overlay) -> None:
    def listdir(path: Any = ".") -> list[Any]:
        """List the user's folder together with the overlay's entries for it."""
        written = overlay.to_change(path)
        if written is None or written is path:
            return list(_real["listdir"](path))
        return sorted({*_real["listdir"](written), *(_real["listdir"](path) if _is_users_folder(path) else ())})

    def scandir(path: Any = ".") -> Any:
        # In a folder of the user's, scandir leaves out the overlay's files.
        return _real["scandir"](path if _is_users_folder(path) else overlay.to_read(path))

    for name in ("stat", "lstat", "access", "chdir"):
        setattr(os, name, with_mapped_path(_real[name], overlay.to_read))
    os.listdir, os.scandir = listdir, scandir


def _is_users_folder(path: Any) -> bool:
    try:
        return stat.S_ISDIR(_real["stat"](path).st_mode)
    except OSError:
        return False


def _redirect_changing(overlay: Overlay) -> None:
    def changing(name: str) -> Callable[..., None]:
        def change(path: Any, *args: Any, **kwargs: Any) -> None:
            """Change the file in the overlay, never the user's own."""
            written = overlay.to_change(path)
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
        written = overlay.to_change(path)
        if written is None:
            return
        redirected = {name: getattr(os, name) for name in _OS_FUNCTIONS}
        for name in _OS_FUNCTIONS:  # rmtree uses folder descriptors, which have no path to redirect
            setattr(os, name, _real[name])
        try:
            real_remove_tree(written, ignore_errors=True)
        finally:
            for name, function in redirected.items():
                setattr(os, name, function)

    shutil.rmtree = remove_tree  # type: ignore[assignment]


def _redirect_old_pathlib() -> None:
    """Redirect pathlib on Python 3.10, which keeps its own references to functions of `os`."""
    accessor = getattr(pathlib, "_NormalAccessor", None)
    for name in _OS_FUNCTIONS if accessor is not None else ():
        if hasattr(accessor, name):
            setattr(accessor, name, staticmethod(io.open if name == "open" else getattr(os, name)))
