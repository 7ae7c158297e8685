"""Real data through the command line: read once, its worst samples trained on, its lengths searched."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli

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


def test_lengths_are_the_datas_and_the_batch_is_bounded_by_it(cli: Cli, spec_file: Callable[..., Path]) -> None:
    (cli.folder / "data").mkdir()
    for part in ("one", "two"):
        text_lines(cli.folder / "data" / f"{part}.jsonl", samples=150)
    spec = text_spec(spec_file)
    ran = cli("probe", spec, "--json", "--memory-limit", "256MiB")
    assert ran.code == 0, ran.err
    document = ran.document
    assert document["dataset"]["samples"] == 300
    assert document["best"]["batch_size"] == 300, "there are no more samples to put into a batch"
    lengths = [row["sequence_length"] for row in document["dataset"]["at_length"]]
    assert lengths[-1] == document["dataset"]["lengths"][-1]["length"]
    assert document["dataset"]["at_length"][-1]["cut_share"] == 0
    assert 0.3 < document["dataset"]["at_length"][0]["cut_share"] <= 0.5
    scans = list((cli.folder / "state").rglob("scans/*.json"))
    assert len(scans) == 1

    shown = cli("probe", spec, "--memory-limit", "256MiB")
    assert "samples cut" in shown.out
    assert "█" in shown.out
    assert list((cli.folder / "state").rglob("scans/*.json")) == scans, "the data is read once"
    text_lines(cli.folder / "data" / "two.jsonl", samples=120)
    changed = cli("probe", spec, "--json", "--memory-limit", "256MiB", "--max-trials", "1")
    assert changed.document["dataset"]["samples"] == 270, "other data is read again"
    assert changed.document["new_trials"] == 1, "and nothing is known of it"


def wrong(folder: Path, name: str) -> dict[str, Any]:
    """Something wrong with the data or with what the spec says of it."""
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
        case "no length to take percentiles of":
            (folder / "data" / "a.csv").write_text("x,y\n1,0\n2,1\n")
            return {"dataset": {"csv": {"path": "data/a.csv", "inputs": ["x"], "targets": "y"}}}
        case _:
            file.write_text("")
            return {"dataset": {"jsonl": jsonl}}


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("a field that is missing", 6, "did you mean 'label'?"),
        ("a line cut short", 6, "a.jsonl:300"),
        ("labels out of range", 6, "dataset.jsonl.targets has classes up to 7, and the model tells 2 apart"),
        ("more tokens than the embedding has", 6, "the embedding 'embedding' has 200 rows"),
        ("a batch larger than the data", 2, "search.batch_size: the smallest is 512, and the dataset has 300 samples"),
        ("no length to take percentiles of", 2, "search.sequence_length.percentiles: the samples"),
        ("an empty file", 6, "holds no samples"),
    ],
)
def test_bad_data_is_named_by_file_and_key_and_nothing_is_written_but_the_ledger(
    cli: Cli, spec_file: Callable[..., Path], name: str, code: int, said: str
) -> None:
    (cli.folder / "data").mkdir()
    text_lines(cli.folder / "data" / "a.jsonl")
    spec = text_spec(spec_file, **wrong(cli.folder, name))
    before = {path for path in cli.folder.rglob("*") if "state" not in path.parts}
    ran = cli("probe", spec, "--json")
    assert ran.code == code, ran.err
    assert said in ran.err
    assert said in json.dumps(ran.document["error"], ensure_ascii=False).replace('\\"', '"')
    assert {path for path in cli.folder.rglob("*") if "state" not in path.parts} == before


def test_what_training_keeps_of_the_data_in_memory_counts(cli: Cli, spec_file: Callable[..., Path]) -> None:
    (cli.folder / "own.py").write_text(
        "import numpy as np, tensorflow as tf\n"
        "def arrays(): return np.zeros((20_000, 64), 'float32'), np.zeros((20_000, 1), 'float32')\n"
        "def pipeline(): return tf.data.Dataset.from_tensors(tuple(a[0] for a in arrays())).repeat(64)\n"
    )
    (cli.folder / "wrong.py").write_text("def load():\n    return {}['x']\n")
    ran = cli("probe", spec_file(dataset={"python": "wrong:load"}, name="wrong"))
    assert (ran.code, "KeyError: 'x'" in ran.err, "wrong.py" in ran.err) == (6, True, True), "their own traceback"
    peaks = {}
    for name in ("arrays", "pipeline"):
        spec = spec_file(dataset={"python": f"own:{name}"}, search__batch_size=[32], name=name)
        ran = cli("probe", spec, "--json")
        assert ran.code == 0, ran.err
        peaks[name] = ran.document["memory"]["peak_bytes"]
    assert peaks["arrays"] > peaks["pipeline"] + 4_000_000, "20,000 samples of 64 floats are 5 MB"
