"""Where a script under trial writes: into a folder of the trial's own, whatever path it names.

What the script opens for writing, makes, renames or removes is redirected there; what it then reads back is found
there. All else that it reads is the user's own. Savers of TensorFlow and Keras do nothing at all: what they would
write is large, and nobody would read it.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

_NOT_FILES = ("/dev/", "/proc/")


class Overlay:
    """A folder that stands in for the whole file system as far as writing goes."""

    def __init__(self, root: Path) -> None:
        self.root = root
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
        if keep and not os.path.lexists(mapped) and os.path.isfile(path):  # noqa: PTH113
            shutil.copyfile(path, mapped)
        return mapped

    def _mapped(self, path: Any) -> str | None:
        if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
            return None  # a descriptor
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are not followed
        if text.startswith((*_NOT_FILES, f"{self.root.parent}{os.sep}")):
            return None
        return str(self.root) + text


_real: dict[str, Callable[..., Any]] = {}


def redirect(scratch: Path) -> None:
    """From here on this process writes below `scratch` alone, as far as Python, TensorFlow and Keras do the writing."""
    overlay = Overlay(scratch / "written")
    sys.dont_write_bytecode = True
    temporary = scratch / "temporary"
    temporary.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    for name in ("open", "mkdir", "makedirs", "remove", "unlink", "rmdir", "rename", "replace", "stat"):
        _real[name] = getattr(os, name)
    _redirect_opening(overlay)
    _redirect_removing(overlay)
    _redirect_tensorflow(overlay)
    _silence_savers()


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

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        result: os.stat_result = _real["stat"](overlay.to_read(path), *args, **kwargs)
        return result

    builtins.open = io.open = open_
    os.open, os.mkdir, os.stat = os_open, mkdir, stat


def _redirect_removing(overlay: Overlay) -> None:
    real_remove_tree = shutil.rmtree

    def remove(path: Any, *, dir_fd: int | None = None) -> None:
        gone = overlay.written(path)
        if gone is not None and dir_fd is None:
            _real["remove"](gone)

    def rmdir(path: Any, *, dir_fd: int | None = None) -> None:
        gone = overlay.written(path)
        if gone is not None and dir_fd is None:
            _real["rmdir"](gone)

    def rename(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        if src_dir_fd is None and dst_dir_fd is None:
            _real["replace"](overlay.to_write(src, keep=True), overlay.to_write(dst))

    def remove_tree(path: Any, *_args: Any, **_kwargs: Any) -> None:
        gone = overlay.written(path)
        if gone is not None:
            real_remove_tree(gone, ignore_errors=True)

    os.remove = os.unlink = remove
    os.rmdir = rmdir
    os.rename = os.replace = rename
    shutil.rmtree = remove_tree  # type: ignore[assignment]


def _redirect_tensorflow(overlay: Overlay) -> None:
    from tensorflow.python.lib.io import file_io

    real_init, real_writer = file_io.FileIO.__init__, tf.summary.create_file_writer

    def init(self: Any, name: Any, mode: str, *args: Any, **kwargs: Any) -> None:
        writes = any(letter in mode for letter in "wa+")
        real_init(self, overlay.to_write(name) if writes else overlay.to_read(name), mode, *args, **kwargs)

    def create_file_writer(logdir: Any, *args: Any, **kwargs: Any) -> Any:
        return real_writer(overlay.to_write(logdir), *args, **kwargs)

    def makedirs(path: Any) -> None:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103

    file_io.FileIO.__init__ = init
    tf.summary.create_file_writer = create_file_writer
    tf.io.gfile.mkdir = tf.io.gfile.makedirs = makedirs
    for name in ("remove", "rmtree", "rename", "copy"):
        setattr(tf.io.gfile, name, _nothing)


def _silence_savers() -> None:
    for owner, names in (
        (keras.Model, ("save", "save_weights", "export")),
        (tf.train.Checkpoint, ("save", "write")),
        (tf.train.CheckpointManager, ("save",)),
        (tf.saved_model, ("save",)),
    ):
        for name in names:
            setattr(owner, name, _nothing)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """What a saver does in a trial."""
