"""Images in folders, one folder a class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from oomtune.domain import ImagesData
from oomtune.errors import DataUnreadable
from oomtune.worker.data.problems import files_of, reason_of, unreadable
from oomtune.worker.data.samples import Count
from oomtune.worker.data.source import Axis, Bounds, Sample, Source

_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif"}
_SPLITS = {"train", "training", "val", "valid", "validation", "eval", "test", "testing"}


def images_source(data: ImagesData, folder: str, bounds: Bounds) -> Source:
    found = _found(files_of(data.paths, folder, "dataset.images.path", folders=True))
    step = max(1.0, len(found) / bounds.images)
    chosen = [found[int(index * step)] for index in range(min(len(found), bounds.images))]
    count = Count()
    return Source(
        samples=count.over(_decoded(chosen, data)),
        share_read=lambda: count.given / len(chosen),
        partial=lambda: len(found) if len(found) > len(chosen) else None,
        name=str(Path(folder, data.paths[0])),
        key="dataset.images.path",
        axes={"": Axis.NOT_A_SEQUENCE},
    )


def _found(folders: list[Path]) -> list[tuple[Path, int]]:
    """Every image with the number of its class."""
    # Keras takes no hidden folder for a class either: notebooks and editors leave them behind.
    inside = [entry for folder in folders for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."]
    _refuse_splits(inside)
    classes = {name: number for number, name in enumerate(sorted({entry.name for entry in inside}))}
    images = sorted(
        (classes[entry.name], path)
        for entry in inside
        for path in entry.rglob("*")
        if path.suffix.lower() in _ENDINGS and path.is_file()
    )
    if not images:
        what = "no images in its folders" if classes else "no folders in it"
        raise DataUnreadable(
            f"{folders[0]}: {what} (dataset.images.path)",
            hint=f"expected a folder for each class, with images in it: {', '.join(sorted(_ENDINGS))}",
        )
    return [(path, number) for number, path in images]


def _refuse_splits(inside: list[Path]) -> None:
    """Folders for training and validation that hold the folders of classes are no classes themselves."""
    if not inside or any(entry.name.lower() not in _SPLITS for entry in inside):
        return
    if all(any(below.is_dir() for below in entry.iterdir()) for entry in inside):
        train = min(inside, key=lambda entry: (not entry.name.lower().startswith("train"), entry.name))
        raise DataUnreadable(
            f"{train.parent}: its folders {', '.join(sorted(entry.name for entry in inside))} hold the folders of "
            "classes (dataset.images.path)",
            hint=f"set dataset.images.path to one of them, such as {train}",
        )


def _decoded(images: list[tuple[Path, int]], data: ImagesData) -> Iterator[Sample]:
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
                reason_of(error),
                "dataset.images.path",
                f"the image is damaged or cut short, or has no {data.channels} channels; remove it",
            ) from None
        yield image, np.array(number, dtype=np.int32)
