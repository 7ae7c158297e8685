"""Loading a spec: its problems with their lines, overrides, digests, and tuned configs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from oomtune.commands.prepare import Preparation
from oomtune.domain import Layers
from oomtune.domain.observer import SilentObserver
from oomtune.errors import SpecProblem, UsageProblem
from oomtune.spec import load_spec
from tests.support.specs import small_spec, spec_problems

WRONG = {"int": {"shape": ["x"]}, "b[0]": {"shape": [-1]}}


def write_small_spec(folder: Path, **overrides: Any) -> Path:
    path = folder / "model.yaml"
    path.write_text(yaml.safe_dump(small_spec(**overrides), sort_keys=False))
    return path


def write(folder: Path, text: str) -> Path:
    path = folder / "model.yaml"
    path.write_text(text)
    return path


def test_shows_all_problems_of_a_file_at_once_with_line_and_key(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
name: x
model:
  layers:
    - Input: {shape: [4]}
    - Dens: {units: 2}
dataset:
  synthetic:
    inputs: {shape: [4], dtype: float32}
    targets: {shape: [2], dtype: int32}
serach: {}
search:
  batch_size: {min: 10, max: 2}
  precision: [float32, mixed_float61]
  objective: token
  objective: tokens
device:
  memory_limit: lots
  headroom: 2
trial:
  steps: -1
""",
    )
    shown = spec_problems(path)
    where = [line.removeprefix(f"{path}:") for line in shown]
    assert where == [
        "5: model.layers[1]: Keras has no layer 'Dens'; did you mean 'Dense'?",
        "9: dataset.synthetic.targets: max is missing: how many different values an int32 may have",
        "10: serach: unknown key; did you mean 'search'?",
        "12: search.batch_size: min is 10 and max is 2; expected min at most max",
        "13: search.precision[1]: expected float32, mixed_bfloat16 or mixed_float16; got 'mixed_float61';"
        " did you mean 'mixed_float16'?",
        "14: search.objective: expected tokens, batch_size, sequence_length or throughput; got 'token';"
        " did you mean 'tokens'?",
        "15: search.objective: duplicate key; keep one",
        "17: device.memory_limit: expected a size such as 2GiB or 1500MB",
        "18: device.headroom: expected less than 0.9; got 2",
        "20: trial.steps: expected 1 or more; got -1",
    ]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"search__batch_size": 0}, "search.batch_size: expected 1 or more; got 0"),
        ({"search__batch_size": -4}, "search.batch_size: expected 1 or more; got -4"),
        ({"search__batch_size": 10**12}, "search.batch_size: expected 2147483647 or less; got 1000000000000"),
        ({"search__batch_size": "many"}, "search.batch_size: expected a whole number, a list of them, or a mapping"),
        ({"search__batch_size": []}, "search.batch_size: expected at least 1 entry; got []"),
        ({"search__batch_size": {"min": 5, "max": 7, "multiple_of": 8}}, "no multiple of 8 lies between 5 and 7"),
        ({"search__batch_size": {"min": 1}}, "search.batch_size.max: this key is missing"),
        ({"search__batch_size": {"max": 9, "mutliple_of": 3}}, "mutliple_of: unknown key; did you mean 'multiple_of'?"),
        ({"search__resolution": "fine"}, "search.resolution: expected a number; got 'fine'"),
        (
            {"model__builder": "m:build"},
            "model: expected exactly one of layers, builder, keras_file, application, train_step and script",
        ),
        (
            {"model__layers": None},
            "model: expected exactly one of layers, builder, keras_file, application, train_step and script",
        ),
        ({"model__layers": None, "model__builder": "not a builder"}, "model.builder: expected package.module:function"),
        ({"dataset__npz": {"path": "no.npz"}}, "dataset.npz.path: no such file"),
        ({"dataset__synthetic__inputs__shape": ["sequence_length"]}, "stands for search.sequence_length, which is not"),
        (
            {"dataset__synthetic__inputs": {"shape": [4], "dtype": "int8", "max": 300}},
            "expected max to be a whole number",
        ),
        (
            {"dataset__synthetic__inputs": {"shape": [4], "dtype": "int32", "max": 0.5}},
            "expected max to be a whole number",
        ),
        ({"dataset__npz": {"path": "x" * 300}}, "dataset.npz.path: no such file"),
        ({"name": float("inf")}, "holds a value that is not plain data"),
        ({"dataset__synthetic__inputs__dtype": "int33"}, "dataset.synthetic.inputs.dtype: expected float32"),
        ({"training__metrics": "accuracy"}, "training.metrics: expected a list of metrics, or a mapping from"),
        (
            {"training__validation_batch_size": "all"},
            "training.validation_batch_size: expected same or none; got 'all'",
        ),
        ({"training__run_eagerly": "yes please"}, "training.run_eagerly: expected true or false; got 'yes please'"),
        ({"device__like": "T4"}, "device: like and memory_limit both set the limit; keep one"),
        ({"device__kind": "tpu"}, "device.kind: expected auto, gpu or cpu; got 'tpu'"),
        ({"device__replicas": 2}, "device.replicas: expected 1; got 2"),
        ({"trial__timeout": "soon"}, "trial.timeout: expected a duration such as 90s, 10m or 2h"),
        ({"model": None}, "model: this key is missing"),
        ({"training": 7}, "training: expected a mapping; got 7"),
    ],
)
def test_the_error_for_a_wrong_value_names_its_key_and_what_is_accepted(
    overrides: dict[str, Any], message: str
) -> None:
    shown = spec_problems(small_spec(**overrides))
    assert any(message in line for line in shown), shown


def test_an_override_beats_the_spec_and_appears_in_its_errors() -> None:
    loaded = load_spec(small_spec(), settings=["search.batch_size=[8, 16]", "training.optimizer=adam"])
    assert loaded.spec.space.batch_sizes == (8, 16)
    assert loaded.spec.training.optimizer == "adam"
    assert spec_problems(small_spec(), settings=["search.resolution=-1"]) == [
        "--set search.resolution: search.resolution: expected 0 or more; got -1"
    ]


def test_a_number_in_an_override_is_an_index_of_a_list() -> None:
    loaded = load_spec(small_spec(), settings=["model.layers.1.Dense.units=7"])
    assert isinstance(loaded.spec.model, Layers)
    assert loaded.spec.model.layers[1].config["units"] == 7
    assert len(loaded.spec.model.layers) == 4
    assert "--set model.layers.1" in spec_problems(small_spec(), settings=["model.layers.1=7"])[0]


@pytest.mark.parametrize(
    "setting",
    [
        "nonsense",
        "=1",
        "a..b=1",
        "search.batch_size=[1",
        "model.layers.9.Dense=1",
        "model.layers.x=1",
        "model.layers.²=1",
        "name=2024-13-45",
        "search.batch_size={max: 3, max: 4}",
        "training.optimizer=" + "[" * 3000,
    ],
)
def test_a_malformed_override_is_bad_usage(setting: str) -> None:
    with pytest.raises(UsageProblem, match="--set"):
        load_spec(small_spec(), settings=[setting])


def test_a_flag_for_the_limit_replaces_the_limit_of_the_spec() -> None:
    loaded = load_spec(small_spec(), flags={"device.like": ("--like", "T4")})
    assert (loaded.spec.device.like, loaded.spec.device.memory_limit_bytes) == ("T4", None)


def test_a_tuned_config_loads_as_a_spec_from_its_original_folder(tmp_path: Path) -> None:
    tuned = {"format": 1, "batch_size": 8, "precision": "float32", "folder": "..", "evidence": {"oomtune": "0.1.0"}}
    path = tmp_path / "out" / "model.tuned.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({**small_spec(), "tuned": tuned}))
    loaded = load_spec(path)
    assert loaded.was_tuned
    assert loaded.spec.folder == str(tmp_path)
    assert loaded.spec.name == "model"
    assert "tuned" not in loaded.values


def test_the_digest_depends_on_the_values_and_not_on_the_layout(tmp_path: Path, spec_file: Callable[..., Path]) -> None:
    first = load_spec(spec_file("a.yaml"))
    flow = tmp_path / "b.yaml"
    flow.write_text(json.dumps(small_spec()))
    assert load_spec(flow).sha256 == first.sha256
    assert load_spec(spec_file("c.yaml", search__resolution=0.01)).sha256 != first.sha256


def test_the_error_for_an_unknown_card_names_its_line_or_flag(tmp_path: Path) -> None:
    path = write_small_spec(tmp_path, device={"kind": "cpu", "like": "RTX 9999"})
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "like" in text)
    worker: Any = object()  # resolving a CPU asks no worker
    preparation = Preparation(SilentObserver(), worker)
    with pytest.raises(UsageProblem) as caught:
        preparation.resolve_device(load_spec(path))
    assert caught.value.where == f"{path}:{line}"
    with pytest.raises(UsageProblem) as caught:
        preparation.resolve_device(load_spec(path, flags={"device.like": ("--like", "RTX 8888")}))
    assert str(caught.value).startswith("--like: no card 'RTX 8888'")


def test_finds_the_line_of_a_dotted_key(tmp_path: Path) -> None:
    path = write_small_spec(tmp_path)
    loaded = load_spec(path)
    assert loaded.place("model.layers[1]") == f"{path}:6"
    assert loaded.place("dataset.synthetic.inputs.nothing").endswith(":16")


def test_errors_name_keys_that_look_like_internals_of_the_validator(tmp_path: Path) -> None:
    path = write_small_spec(tmp_path, trial=None, dataset__synthetic__inputs=WRONG)
    path.write_text(path.read_text() + "trial: {<<: {steps: 2}}\n")
    with pytest.raises(SpecProblem) as refused:
        load_spec(path)
    shown = [str(problem).partition(": ")[2] for problem in refused.value.problems]
    assert shown == [
        "dataset.synthetic.inputs.int.shape[0]: expected a whole number or sequence_length; got 'x'",
        "dataset.synthetic.inputs.b[0].shape[0]: expected 1 or more or sequence_length; got -1",
        "trial.<<: unknown key; known here: warmup_steps, steps, confirm_steps, timeout",
    ]
    del shown[-1]  # a spec from values has no lines; its errors name keys too
    with pytest.raises(SpecProblem) as refused:
        load_spec(small_spec(dataset__synthetic__inputs=WRONG, int=1))
    assert [str(problem).partition(": ")[2] for problem in refused.value.problems][:2] == shown
    assert "spec: int: unknown key" in str(refused.value)
