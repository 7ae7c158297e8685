"""Ledgers of earlier versions, whose specs had one field for each source of a model and each kind of data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from oomtune.domain import (
    Application,
    Builder,
    Candidate,
    ClassConfig,
    DatasetSpec,
    ImagesData,
    KerasFile,
    Layers,
    ModelSpec,
    PythonData,
    Remat,
    RematLayers,
    RematMode,
    Script,
    SyntheticData,
    TensorSpec,
    TextData,
    Tokenizer,
    TrainStep,
)
from oomtune.storage.ledger_format import upgrade_spec

NO_MODEL: dict[str, Any] = {
    "layers": [], "builder": None, "args": {}, "keras_file": None, "allow_code": False, "application": None,
    "train_step": None, "script": None, "gru_for_lstm": False,
}  # fmt: skip
NO_DATA: dict[str, Any] = {
    "synthetic": None, "npz": None, "npy": None, "csv": None, "jsonl": None, "text": None, "tfrecord": None,
    "images": None, "python": None, "tfds": None, "tokenizer": {"split": "bytes", "max": 300, "vectorization": None},
}  # fmt: skip
TENSOR = {"shape": [4, "sequence_length"], "dtype": "float32", "max": None}


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        (
            {"layers": [{"class_name": "Dense", "config": {"units": 2}}]},
            Layers(layers=(ClassConfig(class_name="Dense", config={"units": 2}),)),
        ),
        ({"builder": "nets:make", "args": {"units": 2}}, Builder(function="nets:make", args={"units": 2})),
        ({"keras_file": "a.keras", "allow_code": True}, KerasFile(path="a.keras", allow_code=True)),
        ({"application": {"name": "ResNet50", "args": {}}}, Application(name="ResNet50")),
        ({"train_step": "steps:make", "args": {"units": 2}}, TrainStep(factory="steps:make", args={"units": 2})),
        (
            {"script": {"path": "train.py", "args": ["{batch_size}"], "fits": 2}},
            Script(path="train.py", args=("{batch_size}",), fits=2),
        ),
    ],
)
def test_an_older_model_is_read_as_its_one_source(fields: dict[str, Any], model: ModelSpec) -> None:
    spec: dict[str, Any] = {"model": NO_MODEL | fields, "dataset": dict(NO_DATA)}
    upgrade_spec(spec)
    read: TypeAdapter[ModelSpec] = TypeAdapter(ModelSpec)
    assert read.validate_python(spec["model"]) == model


@pytest.mark.parametrize(
    ("fields", "dataset"),
    [
        ({}, None),
        (
            {"synthetic": {"inputs": {"a": TENSOR}, "targets": TENSOR}},
            SyntheticData(
                inputs={"a": TensorSpec(shape=(4, "sequence_length"), dtype="float32")},
                targets=TensorSpec(shape=(4, "sequence_length"), dtype="float32"),
            ),
        ),
        (
            {"text": {"paths": ["a.txt"], "targets": "next"}},
            TextData(paths=("a.txt",), targets="next", tokenizer=Tokenizer(split="bytes", max=300)),
        ),
        (
            {"images": {"paths": ["a"], "size": [4, 8], "channels": 1}},
            ImagesData(paths=("a",), size=(4, 8), channels=1),
        ),
        ({"python": "mine:data"}, PythonData(function="mine:data")),
    ],
)
def test_an_older_dataset_is_read_as_its_one_kind(fields: dict[str, Any], dataset: DatasetSpec | None) -> None:
    spec: dict[str, Any] = {"model": dict(NO_MODEL), "dataset": NO_DATA | fields}
    upgrade_spec(spec)
    read: TypeAdapter[DatasetSpec | None] = TypeAdapter(DatasetSpec | None)
    assert read.validate_python(spec["dataset"]) == dataset


@pytest.mark.parametrize(
    ("remat", "text"),
    [
        (RematMode.NONE, "none"),
        (RematMode.FULL, "full"),
        (RematLayers(("block_*",)), "block_*"),
        (RematLayers(("block_*", "head")), "block_*,head"),
    ],
)
def test_rematerialisation_is_stored_as_one_string(remat: Remat, text: str) -> None:
    adapter = TypeAdapter(Candidate)
    candidate = Candidate(batch_size=1, remat=remat)
    stored = adapter.dump_python(candidate, mode="json")
    assert stored["remat"] == str(remat) == text
    assert adapter.validate_python(stored) == adapter.validate_json(json.dumps(stored)) == candidate
