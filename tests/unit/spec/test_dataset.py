"""The `dataset` section: every accepted form, and the errors of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import TypeAdapter

from oomtune import domain
from oomtune.errors import SpecProblem
from oomtune.spec import json_schema, load_spec
from tests.support.specs import small_spec

TENSOR = {"shape": [], "dtype": "int32", "max": 2}
FEATURES = {"tokens": {"shape": [None], "dtype": "int64"}, "label": {"dtype": "int64"}}
RECORDS = {"path": "a.tfrecord", "features": FEATURES, "inputs": "tokens", "targets": "label"}
TABLE = {"path": "a.csv", "inputs": "x", "targets": "y"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.npz", "b.npz", "a.npy", "a.csv", "deep/er/b.csv", "a.jsonl", "a.txt", "a.tfrecord", "odd[1].csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "images").mkdir()
    return tmp_path


def loaded(folder: Path, dataset: dict[str, Any]) -> domain.DatasetSpec:
    values = small_spec(dataset=dataset)
    jsonschema.validate(values, json_schema())
    (folder / "model.yaml").write_text(yaml.safe_dump(values))
    dataset_spec = load_spec(folder / "model.yaml").spec.dataset
    assert dataset_spec is not None
    return dataset_spec


def problems(folder: Path, dataset: dict[str, Any]) -> list[str]:
    (folder / "model.yaml").write_text(yaml.safe_dump(small_spec(dataset=dataset)))
    with pytest.raises(SpecProblem) as caught:
        load_spec(folder / "model.yaml")
    return [f"{problem.key}: {problem.message}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    "dataset",
    [
        {"synthetic": {"inputs": TENSOR, "targets": {"a": TENSOR, "b": TENSOR}}},
        {"npz": {"path": "a.npz"}},
        {"npz": {"path": ["a.npz", "b.npz"], "inputs": {"one": "x"}, "targets": "y"}},
        {"npy": {"inputs": "a.npy", "targets": ["a.npy"]}},
        {"npy": {"inputs": {"one": "a.npy", "two": ["*.npy"]}, "targets": {"out": "a.npy"}}},
        {"csv": TABLE},
        {"csv": {**TABLE, "path": "**/*.csv", "inputs": ["x", "z"], "delimiter": "\t"}},
        {"csv": {**TABLE, "inputs": {"a": "x", "b": ["z", "w"]}, "text": ["x"]}, "tokenizer": {"split": "bytes"}},
        {"jsonl": {"path": "a.jsonl", "inputs": "tokens", "targets": "label"}},
        {"jsonl": {"path": "a.jsonl", "inputs": "x", "targets": "y", "text": ["y"]}, "tokenizer": {"max": 300}},
        {"text": {"path": "a.txt"}},
        {"text": {"path": "a.txt", "targets": "same"}, "tokenizer": {"TextVectorization": {"max_tokens": 100}}},
        {"text": {"path": "a.txt", "targets": TENSOR}},
        {"tfrecord": RECORDS},
        {"tfrecord": {**RECORDS, "inputs": {"ids": "tokens"}, "compression": "gzip"}},
        {"images": {"path": "images", "size": [64, 32]}},
        {"images": {"path": "images", "size": [64, 32], "channels": 1}},
        {"python": "package.module:function"},
        {"tfds": {"path": "images", "inputs": "text", "targets": "label"}, "tokenizer": {"split": "words"}},
    ],
)
def test_each_form_reaches_the_worker_unchanged(folder: Path, dataset: dict[str, Any]) -> None:
    spec = loaded(folder, dataset)
    adapter: TypeAdapter[domain.DatasetSpec] = TypeAdapter(domain.DatasetSpec)
    assert adapter.validate_json(adapter.dump_json(spec)) == spec
    assert spec.kind == next(iter(dataset))


def test_omitted_entries_have_defaults(folder: Path) -> None:
    words = domain.Tokenizer(split="words", max=20_000)
    text = loaded(folder, {"text": {"path": "a.txt"}})
    assert text == domain.TextData(paths=("a.txt",), targets="next", tokenizer=words)
    npz = loaded(folder, {"npz": {"path": ["a.npz", "b.npz"]}})
    assert npz == domain.NpzData(paths=("a.npz", "b.npz"), inputs="x", targets="y")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (
            {},
            "dataset: expected exactly one of synthetic, npz, npy, csv, jsonl, text, tfrecord, images, python and tfds",
        ),
        ({"csv": TABLE, "text": {"path": "a.txt"}}, "dataset: expected exactly one of synthetic, npz"),
        ({"cvs": TABLE}, "dataset.cvs: unknown key; did you mean 'csv'?"),
        ({"npz": {"path": "c.npz"}}, "dataset.npz.path: no such file: {folder}/c.npz"),
        ({"npz": {"path": ["a.npz", "c*.npz"]}}, "dataset.npz.path[1]: no such file: {folder}/c*.npz"),
        ({"npz": {"path": 7}}, "dataset.npz.path: expected a path or a list of paths; got 7"),
        ({"npz": {"path": []}}, "dataset.npz.path: expected a path or a list of paths; got []"),
        ({"npz": {"path": "a.npz", "inputs": ["x"]}}, "dataset.npz.inputs: expected a name, or a mapping of inputs to"),
        ({"npy": {"inputs": {"a": "c.npy"}, "targets": "a.npy"}}, "dataset.npy.inputs.a: no such file: {folder}/c.npy"),
        (
            {"npy": {"inputs": 1, "targets": "a.npy"}},
            "dataset.npy.inputs: expected a path, a list of paths, or a mapping",
        ),
        ({"csv": {**TABLE, "path": "images"}}, "dataset.csv.path: no such file: {folder}/images"),
        ({"csv": {**TABLE, "inputs": {"a": 1}}}, "dataset.csv.inputs: expected a name, a list of names, or a mapping"),
        ({"csv": {**TABLE, "delimiter": ";;"}}, "dataset.csv.delimiter: expected one character; got ';;'"),
        (
            {"csv": {**TABLE, "inputs": "word", "text": ["wrod"]}},
            "'wrod' is in neither inputs nor targets; did you mean",
        ),
        (
            {"csv": {**TABLE, "inputs": ["x", "z"], "text": ["x"]}},
            "text: 'x' is in a list of numbers; make it an input",
        ),
        ({"jsonl": {"path": "a.jsonl", "inputs": "x"}}, "dataset.jsonl.targets: this key is missing"),
        (
            {"tfrecord": {**RECORDS, "inputs": "tokns"}},
            "inputs: 'tokns' is not among the features; did you mean 'tokens'",
        ),
        ({"tfrecord": {**RECORDS, "targets": "y"}}, "targets: 'y' is not among the features: label, tokens"),
        (
            {"tfrecord": {**RECORDS, "compression": "zip"}},
            "compression: expected none or gzip; got 'zip'; did you mean",
        ),
        ({"images": {"path": "a.txt", "size": [4, 4]}}, "dataset.images.path: no such folder: {folder}/a.txt"),
        ({"images": {"path": "images", "size": [4]}}, "dataset.images.size: expected at least 2 entr"),
        (
            {"images": {"path": "images", "size": [4, 4], "channels": 2}},
            "dataset.images.channels: expected 1, 3 or 4; got 2",
        ),
        ({"python": "not a function"}, "dataset.python: expected package.module:function; got 'not a function'"),
        ({"images": {"path": "a" * 300, "size": [4, 4]}}, "dataset.images.path: no such folder: {folder}/aaa"),
        ({"tfds": {"path": "no", "inputs": "x", "targets": "y"}}, "dataset.tfds.path: no such folder: {folder}/no"),
        ({"npz": {"path": "a.npz"}, "tokenizer": {}}, "dataset.tokenizer: dataset.npz holds no text; remove tokenizer"),
        (
            {"text": {"path": "a.txt"}, "tokenizer": {"split": "none"}},
            "dataset.text.targets: text that is not split has no tokens for targets; expected a tensor; got 'next'",
        ),
        (
            {"text": {"path": "a.txt"}, "tokenizer": {"split": "none", "max": 9}},
            "dataset.tokenizer: text that is not split has no tokens; remove max",
        ),
        ({"csv": TABLE, "tokenizer": {}}, "dataset.tokenizer: dataset.csv.text names no column; remove tokenizer"),
        ({"tfrecord": RECORDS, "tokenizer": {}}, "dataset.tokenizer: no feature of dataset.tfrecord is a string"),
    ],
)
def test_each_error_names_its_key_and_what_is_accepted(folder: Path, dataset: dict[str, Any], message: str) -> None:
    shown = problems(folder, dataset)
    assert any(message.format(folder=folder) in line for line in shown), shown


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"shape": [2, None], "dtype": "int64"}, "only the first axis may be null"),
        ({"shape": [None], "dtype": "string"}, "a string is one text; its shape is []"),
        ({"shape": [], "dtype": "int32"}, "expected int64, float32 or string; got 'int32'"),
        ({"shape": [0], "dtype": "int64"}, "expected 1 or more; got 0"),
    ],
)
def test_refuses_a_feature_that_cannot_be_read(folder: Path, feature: dict[str, Any], message: str) -> None:
    (line,) = problems(folder, {"tfrecord": {**RECORDS, "features": {**FEATURES, "label": feature}}})
    assert line.startswith("dataset.tfrecord.features.label")
    assert message in line


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (
            {"split": "word"},
            "tokenizer.split: expected words, characters, bytes or none; got 'word'; did you mean 'words'?",
        ),
        ({"max": 1}, "dataset.tokenizer.max: expected 2 or more; got 1"),
        ({"TextVectorization": {}, "max": 9}, "TextVectorization has its own arguments; remove split and max"),
        ({"TextVectorization": {"output_sequence_length": 9}}, "remove output_sequence_length: samples keep their"),
        (
            {"TextVectorization": {"output_mode": "tf_idf"}},
            "expected output_mode to be int, one number a token; got 'tf_",
        ),
        ({"TextVectorization": {"ragged": False}}, "ragged is always true, so that samples keep their lengths"),
        (
            {"TextVectorization": {"vocabulary": "no.txt"}},
            "TextVectorization.vocabulary: no such file: {folder}/no.txt",
        ),
    ],
)
def test_refuses_an_impossible_tokenizer(folder: Path, tokenizer: dict[str, Any], message: str) -> None:
    shown = problems(folder, {"text": {"path": "a.txt"}, "tokenizer": tokenizer})
    assert any(message.format(folder=folder) in line for line in shown), shown


def test_targets_of_text_are_a_word_or_a_tensor(folder: Path) -> None:
    (line,) = problems(folder, {"text": {"path": "a.txt", "targets": "nxt"}})
    assert line == "dataset.text.targets: expected next or same; got 'nxt'; did you mean 'next'?"
    (line,) = problems(folder, {"text": {"path": "a.txt", "targets": {"shape": [], "dtype": "int32"}}})
    assert line == "dataset.text.targets: max is missing: how many different values an int32 may have"
