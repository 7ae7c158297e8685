"""TFRecord files are read, and every way they can be broken is reported with the record's number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from oomtune.domain import Scan
from oomtune.worker.data.source import Bounds
from tests.support.reading import Read, shapes


def example(**features: Any) -> bytes:
    def feature(values: list[Any]) -> Any:
        if isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    made = {name: feature(values) if values else tf.train.Feature() for name, values in features.items()}
    text: bytes = tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()
    return text


def write_records(path: Path, *records: bytes, compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)


TOKENS = {"tokens": {"shape": [None], "dtype": "int64"}, "label": {"shape": [], "dtype": "int64"}}
RECORDS = {"path": "a.tfrecord", "features": TOKENS, "inputs": "tokens", "targets": "label"}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_examples_become_samples_with_their_own_lengths(tmp_path: Path, read: Read, compression: str) -> None:
    records = [example(tokens=list(range(length)), label=[length % 2]) for length in (2, 5, 0, 3)]
    write_records(tmp_path / "a.tfrecord", *records, compression="GZIP" if compression == "gzip" else "")
    result, worst = read(tfrecord={**RECORDS, "compression": compression})
    assert result == Scan(
        samples=4,
        read=4,
        lengths=((1, 1), (2, 1), (3, 1), (5, 1)),
        ranges={"inputs.": (0, 4), "targets.": (0, 1)},
        places={"targets.": (f"{tmp_path}/a.tfrecord, record 1", f"{tmp_path}/a.tfrecord, record 2")},
        sequences=("inputs.",),
    )
    assert shapes(worst) == [((5,), ()), ((3,), ()), ((2,), ()), ((0,), ())]
    some = read(Bounds(samples=2), tfrecord={**RECORDS, "compression": compression})[0]
    assert some.read == 2
    assert some.samples == pytest.approx(4, abs=1)


def test_features_may_be_text_or_arrays(tmp_path: Path, read: Read) -> None:
    features = {
        "text": {"dtype": "string"},
        "frames": {"shape": [None, 2], "dtype": "float32"},
        "box": {"shape": [2, 2], "dtype": "float32"},
    }
    write_records(
        tmp_path / "a.tfrecord",
        example(text=["grüße an alle".encode()], frames=[1.0, 2.0], box=[1.0, 2.0, 3.0, 4.0]),
    )
    result, worst = read(
        tfrecord={
            "path": "a.tfrecord",
            "features": features,
            "inputs": {"f": "frames", "t": "text"},
            "targets": {"b": "box"},
        }
    )
    inputs, targets = worst[0]
    assert result.lengths == ((3, 1),), "the longest part of the sample"
    assert (inputs["f"].shape, inputs["t"].shape, targets["b"].shape) == ((1, 2), (3,), (2, 2))


def test_unusable_records_are_reported_with_their_number(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "a.tfrecord"
    cases = [
        ([b"\xff\xff\xff"], "record 1 can't be read: not a tf.train.Example"),
        ([example(token=[1], label=[1])], "has no feature 'tokens' (dataset.tfrecord.inputs) | did you mean 'token'?"),
        (
            [example(tokens=[1.5], label=[1])],
            "feature 'tokens' has float32 values, not int64 (dataset.tfrecord.inputs)",
        ),
        ([example(tokens=[1], label=[1, 2])], "feature 'label' has 2 values, which do not fill the shape []"),
        ([], "a.tfrecord holds no samples"),
    ]
    for records, message in cases:
        write_records(path, *records)
        assert message in refused(tfrecord=RECORDS)
    write_records(path, example(tokens=[1], label=[1]), example(tokens=[1] * 50, label=[1]))
    assert "is not compressed with gzip" in refused(tfrecord={**RECORDS, "compression": "gzip"})
    path.write_bytes(path.read_bytes()[:-9])
    assert "a.tfrecord, record 2 can't be read" in refused(tfrecord=RECORDS)
    write_records(path, *[example(tokens=[number, 7], label=[1]) for number in range(300)], compression="GZIP")
    assert "is compressed (dataset.tfrecord.path) | set dataset.tfrecord.compression to gzip" in refused(
        tfrecord=RECORDS
    )
    whole = path.read_bytes()
    for end in (-20, -1, 60):  # inside a record, after the last one, and before anything can be unpacked
        path.write_bytes(whole[:end])
        assert "can't be read" in (message := refused(tfrecord={**RECORDS, "compression": "gzip"}))
        assert "cut short" in message


def test_nan_is_reported_with_its_record(tmp_path: Path, refused: Callable[..., str]) -> None:
    features = {"x": {"shape": [2], "dtype": "float32"}, "y": {"shape": [], "dtype": "float32"}}
    write_records(tmp_path / "a.tfrecord", example(x=[1.0, float("nan")], y=[1.0]))
    section = {"path": "a.tfrecord", "features": features, "inputs": "x", "targets": "y"}
    assert "record 1: 'x' is NaN (dataset.tfrecord.inputs)" in refused(tfrecord=section)
