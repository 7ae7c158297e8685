"""Folders of images, one per class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from oomtune.domain import Scan
from oomtune.worker.data.source import Bounds
from tests.support.reading import Read, shapes


def write_images(folder: Path) -> None:
    image = tf.constant(np.random.default_rng(0).integers(0, 255, (20, 30, 3)), tf.uint8)
    for name, encoded in {
        "dogs/a.png": tf.io.encode_png(image),
        "cats/b.JPG": tf.io.encode_jpeg(image),
        "cats/c.jpeg": tf.io.encode_jpeg(image[:, :, :1]),
        "cats/notes.txt": tf.constant("no image"),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded.numpy())


def test_each_folder_is_a_class_and_images_get_one_size(tmp_path: Path, read: Read) -> None:
    write_images(tmp_path / "data")
    result, worst = read(images={"path": "data", "size": [8, 6]})
    assert result == Scan(samples=3, read=3, ranges={"targets.": (0, 1)})
    assert shapes(worst) == [((8, 6, 3), ())] * 3
    assert [int(targets) for _, targets in worst] == [0, 0, 1]
    assert worst[0][0].dtype == "float32"
    assert worst[0][0].max() > 100
    (tmp_path / "data" / ".ipynb_checkpoints").mkdir()
    assert read(images={"path": "data", "size": [8, 6]})[0] == result, "a hidden folder is not a class, as in Keras"
    some = read(Bounds(images=2), images={"path": "data", "size": [8, 6], "channels": 1})[0]
    assert (some.samples, some.read) == (3, 2)


def test_unusable_images_are_reported_by_folder_and_file(tmp_path: Path, refused: Callable[..., str]) -> None:
    section = {"path": "data", "size": [8, 6]}
    (tmp_path / "data").mkdir()
    assert "data: no subfolders (dataset.images.path)" in refused(images=section)
    (tmp_path / "data" / "cats").mkdir()
    assert "data: no images in its subfolders" in refused(images=section)
    write_images(tmp_path / "split" / "train")
    write_images(tmp_path / "split" / "val")
    result = refused(images={"path": "split", "size": [8, 6]})
    assert "split: its subfolders train, val contain the folders of classes (dataset.images.path) | " in result
    assert result.endswith("split/train")
    write_images(tmp_path / "data")
    for name in ("dogs/a.png", "cats/c.jpeg"):
        path = tmp_path / "data" / name
        path.write_bytes(path.read_bytes()[:200])
        assert f"{name} can't be read: " in (message := refused(images=section))
        assert "ParallelMap" not in message, "the stages of the pipeline help nobody"
