"""Read images from folders, one folder per class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from oomtune.domain import ImagesData
from oomtune.errors import DataUnreadable
from oomtune.worker.data.source import (
    Axis,
    Bounds,
    Sample,
    Stream,
    files_of,
    tensorflow_reason,
    unreadable,
)

_KEY = "dataset.images.path"
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif"}
_SPLITS = {"train", "training", "val", "valid", "validation", "eval", "test", "testing"}


def images_source(data: ImagesData, folder: str, bounds: Bounds) -> Stream:
    images = _find_images(files_of(data.paths, folder, _KEY, folders=True))
    step = max(1.0, len(images) / bounds.images)
    chosen = [images[int(index * step)] for index in range(min(len(images), bounds.images))]
    return Stream(
        samples=_decode(chosen, data),
        name=str(Path(folder, data.paths[0])),
        key=_KEY,
        share_read=lambda count: count / len(chosen),
        estimate_total=lambda _: len(images) if len(images) > len(chosen) else None,
        axes={"": Axis.NOT_A_SEQUENCE},
    )


def _find_images(folders: list[Path]) -> list[tuple[Path, int]]:
    """Return every image with the number of its class."""
    # Keras ignores hidden folders too, which notebooks and editors leave behind.
    subfolders = [entry for folder in folders for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."]
    _refuse_splits(subfolders)
    classes = {name: number for number, name in enumerate(sorted({subfolder.name for subfolder in subfolders}))}
    images = sorted(
        (classes[subfolder.name], path)
        for subfolder in subfolders
        for path in subfolder.rglob("*")
        if path.suffix.lower() in _SUFFIXES and path.is_file()
    )
    if not images:
        raise DataUnreadable(
            f"{folders[0]}: {'no images in its subfolders' if classes else 'no subfolders'} ({_KEY})",
            hint=f"expected one folder per class, with images in it: {', '.join(sorted(_SUFFIXES))}",
        )
    return [(path, number) for number, path in images]


def _refuse_splits(subfolders: list[Path]) -> None:
    """Refuse folders such as `train` and `val` that contain the folders of classes."""
    if not subfolders or any(subfolder.name.lower() not in _SPLITS for subfolder in subfolders):
        return
    if all(any(entry.is_dir() for entry in subfolder.iterdir()) for subfolder in subfolders):
        train = min(subfolders, key=lambda folder: (not folder.name.lower().startswith("train"), folder.name))
        raise DataUnreadable(
            f"{train.parent}: its subfolders {', '.join(sorted(folder.name for folder in subfolders))} contain the "
            f"folders of classes ({_KEY})",
            hint=f"set {_KEY} to one of them, such as {train}",
        )


def _decode(images: list[tuple[Path, int]], data: ImagesData) -> Iterator[tuple[Sample, str]]:
    def read(path: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(tf.io.read_file(path), channels=data.channels, expand_animations=False)
        return tf.image.resize(image, data.size)

    paths = tf.data.Dataset.from_tensor_slices([str(path) for path, _ in images])
    decoded = paths.map(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).as_numpy_iterator()
    for path, number in images:
        try:
            image = next(decoded)
        except tf.errors.OpError as error:
            raise unreadable(
                path,
                tensorflow_reason(error),
                _KEY,
                f"the image is damaged or cut short, or does not have {data.channels} channels; remove it",
            ) from None
        yield (image, np.array(number, dtype=np.int32)), ""
