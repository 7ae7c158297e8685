"""Saved models are rebuilt for each precision and length, and no code from the file is run."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import pytest

from oomtune.domain import Candidate, KerasFile
from oomtune.errors import SpecProblem, TrialCrashed
from oomtune.spec import load_spec
from oomtune.worker.build import saved_model
from tests.support.cli import Cli

# Raised by Keras itself when it writes and reads its files.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
]

OWN_LAYER = """\
import keras

class Gate(keras.layers.Layer):
    def call(self, x):
        return x * keras.ops.sigmoid(x)
"""


def text_model(length: int | None) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((length,), dtype="int32"),
            keras.layers.Embedding(50, 8),
            keras.layers.LSTM(8),
            keras.layers.Dense(1),
            keras.layers.Activation("sigmoid", dtype="float32"),
        ]
    )
    model.compile("sgd", "mse")
    return model


def build(
    path: Path,
    *,
    allow_code: bool = False,
    sequences: frozenset[str] | None = None,
    compiled_anew: bool = False,
    **candidate: Any,
) -> keras.Model:
    return saved_model.build(
        KerasFile(path=path.name, allow_code=allow_code),
        str(path.parent),
        Candidate(batch_size=4, **candidate),
        sequences=sequences,
        compiled_anew=compiled_anew,
    )


def save(model: keras.Model, path: Path) -> Path:
    if path.suffix == ".json":
        path.write_text(model.to_json())
    else:
        model.save(path)
    return path


@pytest.mark.parametrize("file", ["model.keras", "model.h5", "model.json"])
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_each_precision_takes_effect_except_on_layers_with_their_own(tmp_path: Path, file: str, precision: str) -> None:
    model = build(save(text_model(None), tmp_path / file), precision=precision, sequence_length=16)
    policies = [layer.dtype_policy.name for layer in model.layers]
    assert policies[:3] == [precision] * 3
    assert model.count_params() == text_model(None).count_params()
    assert model.compiled, "as it was saved"


def test_a_model_saved_in_mixed_precision_keeps_its_float32_output(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        path = save(text_model(None), tmp_path / "model.keras")
    finally:
        keras.config.set_dtype_policy("float32")
    model = build(path, precision="mixed_bfloat16", sequence_length=16)
    assert [layer.dtype_policy.name for layer in model.layers] == ["mixed_bfloat16"] * 3 + ["float32"]


@pytest.mark.parametrize("file", ["model.keras", "model.h5", "model.json"])
@pytest.mark.parametrize("length", [None, 32])
def test_the_input_takes_the_length_under_trial(tmp_path: Path, file: str, length: int | None) -> None:
    model = build(save(text_model(length), tmp_path / file), sequence_length=16)
    assert model.input_shape == (None, None if length is None else 16)
    assert model(keras.ops.zeros((2, 16), "int32")).shape == (2, 1)


def test_a_branched_model_is_rebuilt(tmp_path: Path) -> None:
    left, right = keras.Input((12,), name="left"), keras.Input((12,), name="right")
    joined = keras.layers.Concatenate()([keras.layers.Dense(4)(left), keras.layers.Dense(4)(right)])
    path = save(keras.Model([left, right], keras.layers.Dense(1)(joined)), tmp_path / "model.keras")
    model = build(path, precision="mixed_bfloat16", sequence_length=6)
    assert [tuple(entry.shape) for entry in model.inputs] == [(None, 6), (None, 6)]
    assert model.layers[-1].compute_dtype == "bfloat16"


@pytest.mark.parametrize("length", [None, 12])
@pytest.mark.parametrize("sequences", [None, frozenset({"words"}), frozenset({"1"})])
def test_only_sequences_take_the_length_under_trial(
    tmp_path: Path, length: int | None, sequences: frozenset[str] | None
) -> None:
    about, words = keras.Input((12,), name="about"), keras.Input((length,), dtype="int32", name="words")
    read = keras.layers.LSTM(2)(keras.layers.Embedding(50, 4)(words))
    both = keras.Model([about, words], keras.layers.Dense(1)(keras.layers.Concatenate()([about, read])))
    model = build(save(both, tmp_path / "model.keras"), sequence_length=16, sequences=sequences)
    is_unambiguous = length is None or sequences is not None
    assert {entry.name: entry.shape[1] for entry in model.inputs} == {
        "about": 12 if is_unambiguous else 16,
        "words": length and 16,
    }


@pytest.mark.parametrize("file", ["model.keras", "model.h5", "model.json"])
def test_a_length_that_the_layers_refuse_is_reported_with_a_hint(tmp_path: Path, file: str) -> None:
    fixed = keras.Sequential([keras.Input((12,)), keras.layers.Reshape((3, 4)), keras.layers.LSTM(2)])
    path = save(fixed, tmp_path / file)
    with pytest.raises(TrialCrashed, match="saved with 12 steps per sample and can't be rebuilt with 10") as refused:
        build(path, sequence_length=10)
    assert "search.sequence_length: 12" in refused.value.hint


@pytest.mark.parametrize("file", ["model.keras", "model.h5", "model.json"])
def test_code_in_the_file_is_refused_until_it_is_allowed(tmp_path: Path, file: str) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x * 2)])
    path = save(model, tmp_path / file)
    with pytest.raises(TrialCrashed, match="contains a Lambda layer, whose code is not run"):
        build(path)
    assert len(build(path, allow_code=True).layers) == 1


@pytest.mark.parametrize("file", ["model.keras", "model.h5", "model.json"])
def test_a_custom_class_is_imported_only_if_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    (tmp_path / "own_layers_here.py").write_text(OWN_LAYER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_layers_here", raising=False)
    import own_layers_here  # type: ignore[import-not-found]

    path = save(keras.Sequential([keras.Input((4,)), own_layers_here.Gate()]), tmp_path / file)
    with pytest.raises(TrialCrashed, match="the class 'Gate', which is not part of Keras"):
        build(path)
    assert type(build(path, allow_code=True).layers[0]).__name__ == "Gate"


@pytest.mark.parametrize("file", ["model.keras", "model.h5"])
def test_a_custom_loss_is_refused_only_if_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (tmp_path / "own_losses_here.py").write_text("def apart(truth, answer):\n    return abs(truth - answer)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_losses_here", raising=False)
    import own_losses_here  # type: ignore[import-not-found]

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", own_losses_here.apart)
    path = save(model, tmp_path / file)
    assert not build(path, compiled_anew=True).compiled, "the spec's loss replaces it"
    with pytest.raises(TrialCrashed, match="the function 'apart', which is not part of Keras") as refused:
        build(path)
    assert "model.allow_code: true" in refused.value.hint
    assert build(path, allow_code=True).loss is own_losses_here.apart


def reader(*, output_mode: str = "int", inside: bool = False) -> keras.Model:
    """Return a model that takes text, with a vocabulary that it learnt from data."""
    split = keras.layers.TextVectorization(output_mode=output_mode, name="split")
    split.adapt(["a b b c c c", "a"])
    text = keras.Input((1,), dtype="string")
    network = keras.Model(text, split(text)) if inside else split
    read = network(text) if output_mode == "tf_idf" else keras.layers.Embedding(10, 2)(network(text))
    pooled = read if output_mode == "tf_idf" else keras.layers.GlobalMaxPooling1D()(read)
    model = keras.Model(text, keras.layers.Dense(2)(pooled))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize("inside", [False, True])
def test_a_learnt_vocabulary_is_read_from_the_file(tmp_path: Path, inside: bool) -> None:
    model = build(save(reader(inside=inside), tmp_path / "model.keras"), precision="mixed_bfloat16")
    (split,) = (layer for layer in model._flatten_layers() if layer.name == "split")
    assert split.get_vocabulary() == ["", "[UNK]", "c", "b", "a"]


@pytest.mark.parametrize(
    ("model", "file", "message"),
    [
        (reader, "model.json", "whose vocabulary was learnt from data and is not in the file"),
        (
            lambda: reader(output_mode="tf_idf"),
            "model.keras",
            "whose vocabulary was learnt from data and weighs words by their frequency",
        ),
    ],
)
def test_a_missing_vocabulary_is_reported_with_its_layer(
    tmp_path: Path, model: Callable[[], keras.Model], file: str, message: str
) -> None:
    path = save(model(), tmp_path / file)
    with pytest.raises(TrialCrashed, match=rf"{file} has the layer 'split' \(TextVectorization\), {message}"):
        build(path)


@pytest.mark.parametrize("file", ["model.keras", "model.json"])
def test_a_model_that_takes_text_refuses_a_search_over_lengths(
    tmp_path: Path, spec_file: Callable[..., Path], file: str
) -> None:
    save(reader(), tmp_path / file)
    with pytest.raises(SpecProblem) as refused:
        load_spec(spec_file(model={"keras_file": file}, search__sequence_length=[8]))
    assert f"search.sequence_length: {file} takes text and turns it into tokens itself" in str(refused.value)
    save(text_model(None), tmp_path / "tokens.keras")
    assert load_spec(spec_file(model={"keras_file": "tokens.keras"}, search__sequence_length=[8]))


def test_a_probe_trains_a_model_that_takes_text(cli: Cli, spec_file: Callable[..., Path]) -> None:
    save(reader(), cli.folder / "text.keras")
    (cli.folder / "a.csv").write_text("review,label\n" + "a b c,0\nc,1\n" * 4)
    data = {"csv": {"path": "a.csv", "inputs": "review", "targets": "label", "text": ["review"]}}
    entries: dict[str, Any] = {"model": {"keras_file": "text.keras"}, "training": None, "search": {"batch_size": [4]}}
    spec = spec_file(**entries, dataset=data | {"tokenizer": {"split": "none"}}, trial__confirm_steps=2)
    ran = cli("probe", spec, "--json")
    assert (ran.code, ran.document["dataset"]["samples"]) == (0, 8), ran.err
    ran = cli("probe", spec_file("tokens.yaml", **entries, dataset=data), "--json")
    assert ran.code == 6
    assert "a.csv: dataset.csv.inputs has numbers, but the model takes text" in ran.err
    assert "set dataset.tokenizer: {split: none}" in ran.err


def test_weights_are_not_read_and_a_file_of_weights_alone_is_refused(tmp_path: Path) -> None:
    path = save(text_model(None), tmp_path / "model.h5")
    with h5py.File(path, "a") as file:
        del file["model_weights"]
    assert build(path, sequence_length=16).compiled
    text_model(None).save_weights(tmp_path / "only.weights.h5")
    with pytest.raises(TrialCrashed, match=r"can't be read: .*it may contain only weights"):
        build(tmp_path / "only.weights.h5")


@pytest.mark.parametrize(
    ("file", "contents"),
    [("model.keras", b"not a zip"), ("model.json", b"[1, 2]"), ("model.json", b"{"), ("model.h5", b"nothing")],
)
def test_a_file_without_a_model_is_refused(tmp_path: Path, file: str, contents: bytes) -> None:
    path = tmp_path / file
    path.write_bytes(contents)
    with pytest.raises(TrialCrashed, match=r"can't be read|holds no model"):
        build(path)


def test_an_archive_that_cannot_be_unpacked_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", text_model(None).to_json())
    packed = path.read_bytes()
    for damaged in (
        packed[:60] + b"\xff" * 40 + packed[100:],
        packed.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(TrialCrashed, match="can't be read"):
            build(path)


def test_a_probe_trains_a_saved_model_as_it_was_compiled(cli: Cli, spec_file: Callable[..., Path]) -> None:
    save(text_model(32), cli.folder / "text.keras")
    spec = spec_file(
        model={"keras_file": "text.keras"},
        dataset__synthetic__inputs={"shape": ["sequence_length"], "dtype": "int32", "max": 50},
        training=None,
        search={"batch_size": [8, 16], "sequence_length": [16, 32], "precision": ["float32", "mixed_bfloat16"]},
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    assert (ran.document["best"]["batch_size"], ran.document["best"]["sequence_length"]) == (16, 32)
    assert json.loads(ran.out)["best"]["precision"] == "float32"
