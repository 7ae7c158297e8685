"""Where TensorFlow, Keras and h5py write in a trial: what they open themselves never comes by Python's own `open`."""

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


def redirect_libraries(to_read: ToRead, to_write: ToWrite) -> None:
    """Have their files found and written where these say."""
    _redirect_files(to_read, to_write)
    _redirect_datasets(to_read, to_write)
    _redirect_savers(to_read, to_write)


def _redirect_files(to_read: ToRead, to_write: ToWrite) -> None:
    from oomtune.keras.private_tensorflow import file_io

    def chosen(name: Any, mode: str) -> Any:
        return to_write(name, keep="w" not in mode) if any(letter in mode for letter in "wax+") else to_read(name)

    real_init, real_h5 = file_io.FileIO.__init__, h5py.File.__init__

    def init(self: Any, name: Any, mode: str, *args: Any, **kwargs: Any) -> None:
        real_init(self, chosen(name, mode), mode, *args, **kwargs)

    def h5_init(self: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        real_h5(self, chosen(name, mode), mode, *args, **kwargs)

    def makedirs(path: Any) -> None:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103

    file_io.FileIO.__init__, h5py.File.__init__ = init, h5_init
    tf.summary.create_file_writer = _first_mapped(tf.summary.create_file_writer, to_write)
    tf.io.write_file = _first_mapped(tf.io.write_file, to_write)
    tf.io.read_file = _first_mapped(tf.io.read_file, to_read)
    tf.io.TFRecordWriter.__init__ = _second_mapped(tf.io.TFRecordWriter.__init__, to_write)
    tf.io.gfile.mkdir = tf.io.gfile.makedirs = makedirs
    for name in ("exists", "isdir", "listdir"):
        setattr(tf.io.gfile, name, _first_mapped(getattr(tf.io.gfile, name), to_read))
    for name in ("remove", "rmtree", "rename", "copy"):
        setattr(tf.io.gfile, name, _nothing)


def _redirect_datasets(to_read: ToRead, to_write: ToWrite) -> None:
    def cached(filename: Any) -> Any:
        """A cache that is complete is only read."""
        is_path = isinstance(filename, str | os.PathLike) and os.fspath(filename)
        return to_write(filename) if is_path and not os.path.exists(f"{filename}.index") else filename  # noqa: PTH110

    def files(names: Any) -> Any:
        return [to_read(name) for name in names] if isinstance(names, list | tuple) else to_read(names)

    dataset, real_load = tf.data.Dataset, tf.data.Dataset.load
    real_cache = dataset.cache

    def cache(self: Any, filename: Any = "", name: Any = None) -> Any:
        return real_cache(self, cached(filename), name)

    dataset.cache = cache
    dataset.save = _second_mapped(dataset.save, to_write)
    dataset.load = staticmethod(_first_mapped(real_load, to_read))
    tf.data.TFRecordDataset.__init__ = _second_mapped(tf.data.TFRecordDataset.__init__, files)


def _redirect_savers(to_read: ToRead, to_write: ToWrite) -> None:
    """What Keras saves can be loaded again; checkpoints, which are for later runs, are not written."""
    keras.Model.save = _second_mapped(keras.Model.save, to_write)
    keras.Model.save_weights = _second_mapped(keras.Model.save_weights, to_write)
    keras.Model.load_weights = _second_mapped(keras.Model.load_weights, to_read)
    keras.models.load_model = keras.saving.load_model = _first_mapped(keras.models.load_model, to_read)
    for owner, names in (
        (keras.Model, ("export",)),
        (tf.train.Checkpoint, ("save", "write")),
        (tf.train.CheckpointManager, ("save",)),
        (tf.saved_model, ("save",)),
    ):
        for name in names:
            setattr(owner, name, _nothing)


def _first_mapped(real: Callable[..., Any], mapped: Callable[[Any], Any]) -> Callable[..., Any]:
    """The function with the path that is its first argument replaced, by whatever name it is given."""
    return _mapped(real, mapped, 0)


def _second_mapped(real: Callable[..., Any], mapped: Callable[[Any], Any]) -> Callable[..., Any]:
    """The same for a method, whose first argument is itself."""
    return _mapped(real, mapped, 1)


def _mapped(real: Callable[..., Any], mapped: Callable[[Any], Any], place: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            args = (*args[:place], mapped(args[place]), *args[place + 1 :])
        else:
            kwargs = {name: mapped(value) if name in _PATHS else value for name, value in kwargs.items()}
        return real(*args, **kwargs)

    return call


# What the functions above call the path that they take.
_PATHS = {"path", "filepath", "filename", "filenames", "logdir"}


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """What a saver does in a trial."""
