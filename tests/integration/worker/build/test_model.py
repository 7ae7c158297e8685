"""Models from the spec: graphs of layers, builders and applications."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest

import oomtune.keras
from oomtune.domain import Candidate, Search
from oomtune.errors import TrialCrashed
from oomtune.spec.model import application_names
from oomtune.worker.build import model
from tests.support.cli import Cli
from tests.support.specs import small_work_order

TWO_INPUTS: list[Any] = [
    {"Input": {"name": "words", "shape": ["sequence_length"], "dtype": "int32"}},
    {"Embedding": {"input_dim": 50, "output_dim": 8}},
    {"Bidirectional": {"layer": {"LSTM": {"units": 4, "return_sequences": True}}, "name": "steps"}},
    {"TimeDistributed": {"layer": {"Dense": {"units": 8}}, "name": "queries"}},
    {"Attention": {"inbound": ["queries", "steps"]}},
    {"GlobalMaxPooling1D": {"name": "read"}},
    {"Input": {"name": "about", "shape": [6]}},
    {"own:Gate": {"scale": 2.0, "name": "gated"}},
    {"Concatenate": {"inbound": ["read", "gated"], "name": "both"}},
    {"Dense": {"units": 1, "name": "score"}},
    {"Dense": {"units": 3, "name": "kind", "inbound": "both"}},
]
TWO_LOSSES = {
    "optimizer": "sgd",
    "loss": {
        "score": "mean_squared_error",
        "kind": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}},
    },
    "loss_weights": {"kind": 0.5, "score": 2.0},
    "metrics": {"kind": ["accuracy"]},
}


OWN = """\
import keras

class Gate(keras.layers.Layer):
    def __init__(self, scale, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
    def call(self, x):
        return x * self.scale
"""


def test_a_probe_trains_a_graph_with_two_inputs_and_two_losses(cli: Cli, spec_file: Callable[..., Path]) -> None:
    (cli.folder / "own.py").write_text(OWN)
    spec = spec_file(
        model={"layers": TWO_INPUTS},
        dataset__synthetic={
            "inputs": {
                "words": {"shape": ["sequence_length"], "dtype": "int32", "max": 50},
                "about": {"shape": [6]},
            },
            "targets": {"score": {"shape": [1]}, "kind": {"shape": [], "dtype": "int32", "max": 3}},
        },
        training=TWO_LOSSES,
        search={"batch_size": [8, 16], "sequence_length": [12]},
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["best"]["batch_size"] == 16
    arguments = oomtune.keras.compile_args(oomtune.load_tuned(ran.document["tuned_path"]))
    assert {name: type(loss).__name__ for name, loss in arguments["loss"].items()} == {
        "score": "str",
        "kind": "SparseCategoricalCrossentropy",
    }
    assert arguments["loss_weights"] == TWO_LOSSES["loss_weights"]
    assert arguments["metrics"] == TWO_LOSSES["metrics"]

    (cli.folder / "own.py").write_text(OWN.replace("x * self.scale", "x / self.scale"))
    assert cli("probe", spec, "--json", "--max-trials", "1").code == 7, "with another layer no earlier trial counts"


def test_an_application_is_probed_without_a_download(cli: Cli, spec_file: Callable[..., Path]) -> None:
    args = {"include_top": False, "pooling": "avg", "input_shape": [32, 32, 3]}
    spec = spec_file(
        model={"application": {"name": "VGG16", "args": args}},
        dataset__synthetic={"inputs": {"shape": [32, 32, 3]}, "targets": {"shape": [512]}},
        search={"batch_size": [4, 8]},
        device__memory_limit="512MiB",
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["best"]["batch_size"] == 8


OF_A_LENGTH = """\
import keras

def build(size):
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(size)])
"""


SETS_POLICIES = """\
import keras
keras.config.set_dtype_policy("mixed_bfloat16")
keras.config.set_floatx("float16")

def build(policy=None):
    if policy:
        keras.config.set_dtype_policy(policy)
    return keras.Sequential([keras.Input((64,)), keras.layers.LSTM(4), keras.layers.Dense(1, dtype="float32")])
"""


def test_a_model_has_the_precision_of_its_trial_or_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sets_policies.py").write_text(SETS_POLICIES.replace("(64,)", "(4, 4)"))
    monkeypatch.syspath_prepend(str(tmp_path))

    def built(precision: str, **args: str) -> keras.Model:
        trial = Search(candidate=Candidate(batch_size=2, precision=precision))
        entries = {"builder": "sets_policies:build", "args": args}
        return model.build(small_work_order(trial, tmp_path, model=entries), trial.candidate)

    try:
        assert built("float32").layers[0].dtype_policy.name == "float32", "whatever the module sets on import"
        assert keras.config.floatx() == "float32"
        assert built("mixed_float16").layers[0].dtype_policy.name == "mixed_float16"
        with pytest.raises(TrialCrashed, match="use the policy mixed_float16, but this trial needs float32") as refused:
            built("float32", policy="mixed_float16")
        assert "search.precision: [mixed_float16]" in refused.value.hint
    finally:
        keras.config.set_dtype_policy("float32")


def test_a_length_that_neither_model_nor_data_takes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_length.py").write_text(OF_A_LENGTH)
    monkeypatch.syspath_prepend(str(tmp_path))

    def built(*shape: Any, **entries: Any) -> keras.Model:
        trial = Search(candidate=Candidate(batch_size=2, sequence_length=6))
        inputs = {"shape": list(shape)}
        order = small_work_order(
            trial, tmp_path, model=entries, search__sequence_length=[6], dataset__synthetic__inputs=inputs
        )
        return model.build(order, trial.candidate)

    fixed: list[Any] = [{"Input": {"shape": [4]}}, {"Dense": {"units": 1}}]
    for entries in ({"layers": fixed}, {"builder": "of_a_length:build", "args": {"size": 4}}):
        with pytest.raises(TrialCrashed, match=r"search\.sequence_length is set, but neither the model nor the data"):
            built(4, **entries)
        assert built("sequence_length", **entries), "the data has this length"
    assert built(4, layers=[{"Input": {"shape": [4]}}, {"RepeatVector": {"n": "sequence_length"}}]).output_shape[1] == 6
    assert built(4, builder="of_a_length:build", args={"size": "sequence_length"}).output_shape == (None, 6)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"application": {"name": "ResNet5"}}, "keras.applications has no 'ResNet5'; did you mean 'ResNet50'?"),
        ({"application": {"name": "VGG16", "args": {"weights": "imagenet"}}}, "nothing is downloaded"),
        ({"keras_file": "missing.keras"}, "no such file"),
        ({"keras_file": "model.pkl"}, "keras_file"),
        ({"layers": [{"Dense": {"units": 1, "inbound": "nothing"}}]}, "no earlier layer is named 'nothing'"),
        ({"layers": [{"Input": {"name": "a"}}, {"Dense": {"units": 1, "name": "a"}}]}, "two layers are named 'a'"),
        ({"layers": [{"Bidirectional": {"layer": {"LTSM": {}}}}]}, "no layer 'LTSM'; did you mean 'LSTM'?"),
        ({"layers": [{"Bidirectional": {"layer": 3}}]}, "expected layer to be a layer"),
        ({"layers": ["Flatten", {"Input": {"shape": [4]}}, {"Input": {"shape": [4]}}]}, "expected an Input"),
        (
            {"layers": [{"Dense": {"units": 1, "name": "a"}}, {"Dense": {"units": 1, "inbound": "a"}}]},
            "expected an Input",
        ),
        ({"layers": ["Dense"], "allow_code": True}, "allow_code is for a keras_file"),
        ({}, "expected exactly one of layers, builder, keras_file, application, train_step and script"),
    ],
)
def test_errors_in_a_model_section_are_reported_before_anything_runs(
    cli: Cli, spec_file: Callable[..., Path], entry: dict[str, Any], message: str
) -> None:
    ran = cli("probe", spec_file(model=entry), "--json")
    assert ran.code == 2
    assert message in ran.err + ran.out
    assert not cli.ledgers()


# The smallest model of each family, and the smallest image that it takes.
FAMILIES = {
    "ConvNeXtTiny": 32, "DenseNet121": 32, "EfficientNetB0": 32, "EfficientNetV2B0": 32, "InceptionResNetV2": 75,
    "InceptionV3": 75, "MobileNet": 32, "MobileNetV2": 32, "MobileNetV3Small": 32, "NASNetMobile": 32, "ResNet50": 32,
    "ResNet50V2": 32, "VGG16": 32, "VGG19": 32, "Xception": 71,
}  # fmt: skip


def test_a_spec_accepts_exactly_the_applications_that_keras_has() -> None:
    applications = {name for name, maker in vars(keras.applications).items() if inspect.isfunction(maker)}
    assert application_names() == applications
    families = {sys.modules[getattr(keras.applications, name).__module__] for name in applications}
    assert families == {sys.modules[getattr(keras.applications, name).__module__] for name in FAMILIES}


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_of_applications_is_built_in_half_precision(tmp_path: Path, name: str) -> None:
    trial = Search(candidate=Candidate(batch_size=2, precision="mixed_bfloat16"))
    side = FAMILIES[name]
    entry = {"name": name, "args": {"weights": None, "classes": 7, "input_shape": [side, side, 3]}}
    try:
        built = model.build(small_work_order(trial, tmp_path, model={"application": entry}), trial.candidate)
    finally:
        keras.config.set_dtype_policy("float32")
    assert (built.input_shape, built.output_shape) == ((None, side, side, 3), (None, 7))
    computed = [layer for layer in built._flatten_layers() if not isinstance(layer, keras.layers.InputLayer)]
    assert {layer.compute_dtype for layer in computed} == {"bfloat16"}
    assert {keras.backend.standardize_dtype(weight.dtype) for weight in built.trainable_weights} == {"float32"}
    assert built.output.dtype == "bfloat16"
