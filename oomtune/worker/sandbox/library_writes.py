"""Redirects the writes of TensorFlow, Keras and h5py during a trial, because they don't open files through Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import h5py
import keras
import tensorflow as tf


class ToWrite(Protocol):
    def __call__(self, path: Any, *, keep: bool = False) -> Any: ...


ToRead = Callable[[Any], Any]
_PATH_NAMES = {"path", "filepath", "filename", "filenames", "logdir"}


def redirect_libraries(to_read: ToRead, to_write: ToWrite) -> None:
    """Make the libraries read and write files at the paths that `to_read` and `to_write` return."""
    _redirect_files(to_read, to_write)
    _redirect_datasets(to_read, to_write)
    _redirect_savers(to_read, to_write)


def _redirect_files(to_read: ToRead, to_write: ToWrite) -> None:
    from oomtune.keras.private_tensorflow import file_io

    def redirected(name: Any, mode: str) -> Any:
        return to_write(name, keep="w" not in mode) if any(letter in mode for letter in "wax+") else to_read(name)

    real_init, real_h5 = file_io.FileIO.__init__, h5py.File.__init__

    def init(self: Any, name: Any, mode: str, *args: Any, **kwargs: Any) -> None:
        real_init(self, redirected(name, mode), mode, *args, **kwargs)

    def h5_init(self: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        real_h5(self, redirected(name, mode), mode, *args, **kwargs)

    def makedirs(path: Any) -> None:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103

    file_io.FileIO.__init__, h5py.File.__init__ = init, h5_init
    tf.summary.create_file_writer = with_mapped_path(tf.summary.create_file_writer, to_write)
    tf.io.write_file = with_mapped_path(tf.io.write_file, to_write)
    tf.io.read_file = with_mapped_path(tf.io.read_file, to_read)
    tf.io.TFRecordWriter.__init__ = with_mapped_path(tf.io.TFRecordWriter.__init__, to_write, position=1)
    tf.io.gfile.mkdir = tf.io.gfile.makedirs = makedirs
    for name in ("exists", "isdir", "listdir"):
        setattr(tf.io.gfile, name, with_mapped_path(getattr(tf.io.gfile, name), to_read))
    for name in ("remove", "rmtree", "rename", "copy"):
        setattr(tf.io.gfile, name, _do_nothing)


def _redirect_datasets(to_read: ToRead, to_write: ToWrite) -> None:
    def cache_path(filename: Any) -> Any:
        """Return the path of a cache. A complete cache keeps its path, because TensorFlow only reads it."""
        is_path = isinstance(filename, str | os.PathLike) and os.fspath(filename)
        return to_write(filename) if is_path and not os.path.exists(f"{filename}.index") else filename  # noqa: PTH110

    def map_names(names: Any) -> Any:
        return [to_read(name) for name in names] if isinstance(names, list | tuple) else to_read(names)

    dataset, real_load = tf.data.Dataset, tf.data.Dataset.load
    real_cache = dataset.cache

    def cache(self: Any, filename: Any = "", name: Any = None) -> Any:
        return real_cache(self, cache_path(filename), name)

    dataset.cache = cache
    dataset.save = with_mapped_path(dataset.save, to_write, position=1)
    dataset.load = staticmethod(with_mapped_path(real_load, to_read))
    tf.data.TFRecordDataset.__init__ = with_mapped_path(tf.data.TFRecordDataset.__init__, map_names, position=1)


def _redirect_savers(to_read: ToRead, to_write: ToWrite) -> None:
    """Let Keras save files that the code can load again; skip checkpoints, which only later runs need."""
    keras.Model.save = with_mapped_path(keras.Model.save, to_write, position=1)
    keras.Model.save_weights = with_mapped_path(keras.Model.save_weights, to_write, position=1)
    keras.Model.load_weights = with_mapped_path(keras.Model.load_weights, to_read, position=1)
    keras.models.load_model = keras.saving.load_model = with_mapped_path(keras.models.load_model, to_read)
    for owner, names in (
        (keras.Model, ("export",)),
        (tf.train.Checkpoint, ("save", "write")),
        (tf.train.CheckpointManager, ("save",)),
        (tf.saved_model, ("save",)),
    ):
        for name in names:
            setattr(owner, name, _do_nothing)


def with_mapped_path(
    real: Callable[..., Any], map_path: Callable[[Any], Any], *, position: int = 0
) -> Callable[..., Any]:
    """Wrap the function so that `map_path` maps its path: the argument at `position`, or else any named like a path."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = (*args[:position], map_path(args[position]), *args[position + 1 :])
        else:
            kwargs = {name: map_path(value) if name in _PATH_NAMES else value for name, value in kwargs.items()}
        return real(*args, **kwargs)

    return call


def _do_nothing(*_args: Any, **_kwargs: Any) -> None:
    """Replace a function that saves for later runs."""
