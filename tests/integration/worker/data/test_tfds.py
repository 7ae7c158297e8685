"""Datasets that TensorFlow Datasets has prepared on disk are read and trained on. Nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.support.cli import Cli
from tests.support.reading import Read, shapes

SIZES = {"train": (2, 6, 3, 4), "test": (5,)}
TINY: dict[str, Any] = {"path": "tiny/1.0.0", "inputs": "tokens", "targets": "label"}


def rows(sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    for size in sizes:
        yield {
            "tokens": list(range(size)),
            "text": " ".join("abcdef"[:size]),
            "about": {"author": size},
            "label": size % 2,
        }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small dataset that TensorFlow Datasets itself wrote."""
    folder = tmp_path_factory.mktemp("prepared")
    features = tfds.features.FeaturesDict(
        {
            "tokens": tfds.features.Sequence(np.int64),
            "text": tfds.features.Text(),
            "about": {"author": np.int64},
            "label": tfds.features.ClassLabel(names=["even", "odd"]),
        }
    )
    number = tf.TensorSpec((), tf.int64)
    signature = {"tokens": tf.TensorSpec((None,), tf.int64), "text": tf.TensorSpec((), tf.string)}
    signature |= {"about": {"author": number}, "label": number}
    tfds.disable_progress_bar()
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny",
        version="1.0.0",
        features=features,
        split_datasets={
            split: tf.data.Dataset.from_generator(lambda sizes=sizes: rows(sizes), output_signature=signature)
            for split, sizes in SIZES.items()
        },
        data_dir=folder,
        disable_shuffling=True,
    )
    return folder / "tiny"


@pytest.fixture
def tiny(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "tiny"))


@pytest.mark.usefixtures("tiny")
def test_features_become_samples_with_their_own_lengths(read: Read) -> None:
    result, worst = read(tfds=TINY)
    assert (result.samples, result.all_read, result.lengths) == (4, True, ((2, 1), (3, 1), (4, 1), (6, 1)))
    assert (result.ranges, result.sequences) == ({"inputs.": (0, 5), "targets.": (0, 1)}, ("inputs.",))
    assert shapes(worst) == [((6,), ()), ((4,), ()), ((3,), ()), ((2,), ())]
    assert worst[0][0].tolist() == [0, 1, 2, 3, 4, 5]
    of_text = read(tfds=TINY | {"inputs": {"words": "text"}}, tokenizer={"max": 50})[0]
    assert (of_text.lengths, of_text.sequences) == (result.lengths, ("inputs.words",))
    assert 0 < of_text.ranges["inputs.words"][0] <= of_text.ranges["inputs.words"][1] < 50


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("split", "samples"), [("test", 1), ("train[:50%]", 2), ("train+test", 5), ("all", 5)])
def test_a_split_may_be_a_part_or_a_sum(read: Read, split: str, samples: int) -> None:
    assert read(tfds=TINY | {"path": "*/1.0.0", "split": split})[0].samples == samples


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"split": "trian"},
            "1.0.0 has no split 'trian' (dataset.tfds.split) | did you mean 'train'? it has: test, tr",
        ),
        ({"split": "train+dev"}, "split train+dev can't be read: "),
        ({"split": "train[10:20]"}, "split train[10:20] can't be read: "),
        ({"inputs": "token"}, "1.0.0 has no feature 'token' (dataset.tfds.inputs) | did you mean 'tokens'?"),
        ({"targets": {"a": "y"}}, "1.0.0 has no feature 'y' (dataset.tfds.targets) | it has: about, label, text, tok"),
        ({"inputs": "about"}, "feature 'about' is a group of features, not one tensor (dataset.tfds.inputs)"),
        ({"path": "tiny"}, "tiny can't be read: "),
    ],
)
def test_missing_splits_and_features_are_reported(
    refused: Callable[..., str], entry: dict[str, Any], message: str
) -> None:
    result = refused(tfds=TINY | entry)
    assert message in result
    assert "Traceback" not in result


def test_a_truncated_file_is_reported(tiny: Path, refused: Callable[..., str]) -> None:
    (file,) = tiny.rglob("*train.tfrecord*")
    file.write_bytes(file.read_bytes()[:-5])
    result = refused(tfds=TINY)
    assert f"{tiny / '1.0.0'}, split train (dataset.tfds.path) failed after 3 samples: truncated record" in result
    assert "prepare it again" in result


@pytest.mark.usefixtures("tiny")
def test_a_missing_package_is_reported_with_the_pip_command(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorflow_datasets", None)
    result = refused(tfds=TINY)
    assert "needs the package tensorflow-datasets" in result
    assert result.endswith("pip install tensorflow-datasets")


@pytest.mark.usefixtures("tiny")
def test_a_probe_trains_on_a_prepared_dataset(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file(
        model={
            "layers": [
                {"Input": {"shape": ["sequence_length"], "dtype": "int64"}},
                {"Embedding": {"input_dim": 6, "output_dim": 4}},
                "GlobalAveragePooling1D",
                {"Dense": {"units": 2}},
            ]
        },
        dataset={"tfds": TINY},
        training__loss={"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}},
        search={"batch_size": 2, "sequence_length": {"percentiles": [100]}, "buckets": 0},
        trial__confirm_steps=2,
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["best"] | {"batch_size": 2, "sequence_length": 6} == ran.document["best"]
    assert ran.document["dataset"]["samples"] == 4
    before = {path for path in cli.folder.rglob("*") if "state" not in path.parts}
    for key, value, code in (
        ("split", "dev", 6),
        ("targets", "labels", 6),
        ("path", "nowhere/1.0.0", 2),
    ):
        ran = cli("probe", spec, "--json", "--set", f"dataset.tfds.{key}={value}", "-o", "other.yaml")
        assert ran.code == code, ran.err
        assert f"dataset.tfds.{key}" in ran.document["error"]["message"] + (ran.document["error"]["where"] or "")
    assert {path for path in cli.folder.rglob("*") if "state" not in path.parts} == before
