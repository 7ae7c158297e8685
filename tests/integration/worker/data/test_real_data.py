"""Real data through the command line: read once, trained on its worst samples, searched over its lengths."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cli import Cli

CLASSIFIER: list[Any] = [
    {"Input": {"shape": ["sequence_length"], "dtype": "int32"}},
    {"Embedding": {"input_dim": 200, "output_dim": 16}},
    {"Conv1D": {"filters": 16, "kernel_size": 3, "padding": "same"}},
    "GlobalMaxPooling1D",
    {"Dense": {"units": 2}},
]
SPARSE = {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}


def text_lines(path: Path, samples: int = 300, labels: tuple[Any, ...] = ("good", "bad")) -> None:
    chance = random.Random(7)
    rows = []
    for number in range(samples):
        length = min(90, max(2, round(chance.lognormvariate(2.5, 0.8))))
        rows.append({"text": " ".join(chance.choices("abcdefgh", k=length)), "label": labels[number % len(labels)]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def text_spec(spec_file: Callable[..., Path], **overrides: Any) -> Path:
    entries: dict[str, Any] = {
        "model": {"layers": CLASSIFIER},
        "dataset": {
            "jsonl": {"path": "data/*.jsonl", "inputs": "text", "targets": "label"},
            "tokenizer": {"split": "words", "max": 200},
        },
        "training": {"optimizer": "sgd", "loss": SPARSE},
        "search": {"batch_size": {"max": 4096}, "sequence_length": {"percentiles": [50, 100]}, "resolution": 0.3}
        | {"buckets": 0},
    }
    return spec_file(**entries | overrides)


def test_lengths_come_from_the_data_and_its_size_bounds_the_batch(cli: Cli, spec_file: Callable[..., Path]) -> None:
    (cli.folder / "data").mkdir()
    for part in ("one", "two"):
        text_lines(cli.folder / "data" / f"{part}.jsonl", samples=150)
    spec = text_spec(spec_file)
    ran = cli("probe", spec, "--json", "--memory-limit", "256MiB")
    assert ran.code == 0, ran.err
    document = ran.document
    assert document["dataset"]["samples"] == 300
    assert document["best"]["batch_size"] == 300, "a batch can't have more samples than the data"
    lengths = [row["sequence_length"] for row in document["dataset"]["at_length"]]
    assert lengths[-1] == document["dataset"]["lengths"][-1]["length"]
    assert document["dataset"]["at_length"][-1]["cut_share"] == 0
    assert 0.3 < document["dataset"]["at_length"][0]["cut_share"] <= 0.5

    def scans() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (cli.folder / "state").rglob("scans/*.*")}

    before = scans()
    assert len(before) == 2, "the result of the scan, and the worst samples"

    shown = cli("probe", spec, "--memory-limit", "256MiB")
    assert "samples cut" in shown.out
    assert "█" in shown.out
    assert scans() == before, "the data is read once"
    text_lines(cli.folder / "data" / "two.jsonl", samples=120)
    changed = cli("probe", spec, "--json", "--memory-limit", "256MiB", "--max-trials", "1")
    assert changed.document["dataset"]["samples"] == 270, "other data is read again"
    assert changed.document["new_trials"] == 1, "and no earlier trial counts"


def bad_dataset(folder: Path, name: str) -> dict[str, Any]:
    """Return spec entries with an error in the data, or in what the spec says about it."""
    file = folder / "data" / "a.jsonl"
    jsonl = {"path": "data/a.jsonl", "inputs": "text", "targets": "label"}
    tokens = {"split": "words", "max": 200}
    match name:
        case "a field that is missing":
            return {"dataset": {"jsonl": jsonl | {"targets": "lable"}}}
        case "a line cut short":
            file.write_text(file.read_text()[:-20])
            return {"dataset": {"jsonl": jsonl}}
        case "labels out of range":
            text_lines(file, labels=(0, 1, 7))
            return {"dataset": {"jsonl": jsonl, "tokenizer": tokens}}
        case "more tokens than the embedding has":
            return {"dataset": {"jsonl": jsonl, "tokenizer": tokens | {"max": 5000}}}
        case "a batch larger than the data":
            return {"search": {"batch_size": 512, "sequence_length": [8]}}
        case "NaN in the data":
            (folder / "data" / "a.csv").write_text("x,y\n1,0\nnan,1\n")
            return {"dataset": {"csv": {"path": "data/a.csv", "inputs": ["x"], "targets": "y"}}}
        case "NaN in an array":
            np.savez(folder / "data" / "a.npz", x=[[1.0], [np.nan]], y=[0, 1])
            return {"dataset": {"npz": {"path": "data/a.npz"}}}
        case "no length to take percentiles of":
            (folder / "data" / "a.csv").write_text("x,y\n1,0\n2,1\n")
            return {"dataset": {"csv": {"path": "data/a.csv", "inputs": ["x"], "targets": "y"}}}
        case _:
            file.write_text("")
            return {"dataset": {"jsonl": jsonl}}


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("a field that is missing", 6, "did you mean 'label'?"),
        ("a line cut short", 6, "a.jsonl:300: the last line is cut short"),
        ("NaN in the data", 6, "data/a.csv:3: 'x' is NaN (dataset.csv.inputs)"),
        ("NaN in an array", 6, "data/a.npz: 'x' is NaN in row 1, at [0], counting rows from 0 (dataset.npz.inputs)"),
        ("labels out of range", 6, "data/a.jsonl:3: dataset.jsonl.targets has classes up to 7, but the model has 2"),
        ("more tokens than the embedding has", 6, "the embedding 'embedding' has only 200 rows"),
        (
            "a batch larger than the data",
            2,
            "model.yaml:32: search.batch_size: the smallest is 512, and the dataset has 300 samples",
        ),
        ("no length to take percentiles of", 2, "model.yaml:33: search.sequence_length.percentiles: the samples"),
        ("an empty file", 6, "data/a.jsonl holds no samples (dataset.jsonl.path)"),
    ],
)
def test_bad_data_is_reported_with_file_and_key_and_only_the_ledger_is_written(
    cli: Cli, spec_file: Callable[..., Path], name: str, code: int, message: str
) -> None:
    (cli.folder / "data").mkdir()
    text_lines(cli.folder / "data" / "a.jsonl")
    spec = text_spec(spec_file, **bad_dataset(cli.folder, name))
    before = {path for path in cli.folder.rglob("*") if "state" not in path.parts}
    ran = cli("probe", spec, "--json")
    assert ran.code == code, ran.err
    assert message in ran.err
    assert message in json.dumps(ran.document["error"], ensure_ascii=False).replace('\\"', '"')
    assert {path for path in cli.folder.rglob("*") if "state" not in path.parts} == before
    assert not ran.document["trials"]


DENSE: list[Any] = [{"Input": {"shape": [3]}}, {"Dense": {"units": 2}}]
TAGGER: list[Any] = [
    {"Input": {"shape": ["sequence_length"], "dtype": "int32"}},
    {"Embedding": {"input_dim": 300, "output_dim": 4}},
    {"Dense": {"units": 300}},
]


def kind_of_data(folder: Path, kind: str) -> dict[str, Any]:
    """Return data of this kind, and a model for it."""
    chance = np.random.default_rng(0)
    words = "".join(f"{' '.join(chance.choice(list('abcdef'), size))}\n" for size in (2, 5, 9, 4))
    match kind:
        case "npy":
            np.save(folder / "x.npy", chance.random((8, 3), dtype="float32"))
            np.save(folder / "y.npy", np.arange(8) % 2)
            return {"dataset": {"npy": {"inputs": "x.npy", "targets": "y.npy"}}, "layers": DENSE}
        case "csv":
            (folder / "a.csv").write_text("a,b,c,kind\n" + "1,2,3,dog\n4,5,6,cat\n" * 4)
            return {
                "dataset": {"csv": {"path": "*.csv", "inputs": ["a", "b", "c"], "targets": "kind"}},
                "layers": DENSE,
            }
        case "images":
            for name in ("cats", "dogs"):
                (folder / "images" / name).mkdir(parents=True)
                (folder / "images" / name / "a.bmp").write_bytes(bitmap(2, 2))
            layers = [{"Input": {"shape": [4, 4, 3]}}, "Flatten", {"Dense": {"units": 2}}]
            return {"dataset": {"images": {"path": "images", "size": [4, 4]}}, "layers": layers}
        case "tfrecord":
            write_records(folder / "a.tfrecord")
            features = {"tokens": {"shape": [None], "dtype": "int64"}, "label": {"dtype": "int64"}}
            section = {"path": "a.tfrecord", "features": features, "inputs": "tokens", "targets": "label"}
            return {"dataset": {"tfrecord": section}, "layers": CLASSIFIER, "length": 6}
        case "ragged":
            (folder / "own.py").write_text(RAGGED)
            return {"dataset": {"python": "own:load"}, "layers": CLASSIFIER, "length": 6}
        case _:
            (folder / "a.txt").write_text(words)
            hashed: dict[str, Any] = {"split": "words", "max": 300}
            learned = {"TextVectorization": {"max_tokens": 300}}
            tokenizer = learned if kind == "TextVectorization" else hashed
            return {"dataset": {"text": {"path": "a.txt"}, "tokenizer": tokenizer}, "layers": TAGGER, "length": 8}


RAGGED = """
import numpy as np, tensorflow as tf
def load(): return tf.ragged.constant([[1, 2], [3], [4, 5, 6, 7, 8, 9]]), np.array([0, 1, 1])
"""


def write_records(path: Path) -> None:
    import tensorflow as tf

    def whole(values: list[int]) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    with tf.io.TFRecordWriter(str(path)) as file:
        for size in (2, 6, 3):
            features = tf.train.Features(feature={"tokens": whole(list(range(size))), "label": whole([size % 2])})
            file.write(tf.train.Example(features=features).SerializeToString())


def bitmap(height: int, width: int) -> bytes:
    pixels = bytes((width * 3 + 3) // 4 * 4 * height)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(pixels), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(pixels), 0, 0, 54) + header + pixels


@pytest.mark.parametrize("kind", ["npy", "csv", "images", "tfrecord", "ragged", "text", "TextVectorization"])
def test_a_probe_trains_on_every_kind_of_data(cli: Cli, spec_file: Callable[..., Path], kind: str) -> None:
    section = kind_of_data(cli.folder, kind)
    length = {"sequence_length": section["length"]} if "length" in section else {}
    spec = spec_file(
        model={"layers": section["layers"]},
        dataset=section["dataset"],
        training={"optimizer": "sgd", "loss": SPARSE},
        search={"batch_size": 2, "buckets": 0, **length},
        trial__confirm_steps=2,
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["best"]["batch_size"] == 2
    if length:
        assert ran.document["dataset"]["lengths"][-1]["length"] == length["sequence_length"]


def test_the_time_limit_also_stops_reading_data(cli: Cli, spec_file: Callable[..., Path]) -> None:
    (cli.folder / "slow.py").write_text("import time\ndef load():\n    time.sleep(3600)\n")
    spec = spec_file(dataset={"python": "slow:load"}, search__sequence_length={"percentiles": [100]})
    ran = cli("probe", spec, "--json", "--time-limit", "1s", "--report", "out.html", "--summary", "out.md")
    assert ran.code == 7, ran.err
    assert (ran.document["verdict"], ran.document["best"], ran.document["trials"]) == ("stopped", None, [])
    assert "stopped by --time-limit while the data was being read" in ran.document["error"]["message"]
    assert not (cli.folder / "model.tuned.yaml").exists()


def test_data_that_training_keeps_in_memory_counts(cli: Cli, spec_file: Callable[..., Path]) -> None:
    (cli.folder / "own.py").write_text(
        "import numpy as np, tensorflow as tf\n"
        "def arrays(): return np.zeros((20_000, 64), 'float32'), np.zeros((20_000, 1), 'float32')\n"
        "def pipeline(): return tf.data.Dataset.from_tensors(tuple(a[0] for a in arrays())).repeat(64)\n"
    )
    (cli.folder / "wrong.py").write_text("def load():\n    return {}['x']\n")
    ran = cli("probe", spec_file(dataset={"python": "wrong:load"}, name="wrong"))
    assert (ran.code, "KeyError: 'x'" in ran.err, "wrong.py" in ran.err) == (6, True, True), "the user's own traceback"
    peaks = {}
    for name in ("arrays", "pipeline"):
        spec = spec_file(dataset={"python": f"own:{name}"}, search__batch_size=[32], name=name)
        ran = cli("probe", spec, "--json")
        assert ran.code == 0, ran.err
        peaks[name] = ran.document["memory"]["peak_bytes"]
    assert peaks["arrays"] > peaks["pipeline"] + 4_000_000, "20,000 samples of 64 floats are 5 MB"
