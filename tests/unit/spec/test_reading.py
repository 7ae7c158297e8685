from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from oomtune.domain import Layers, Objective
from oomtune.errors import SpecProblem, UsageProblem
from oomtune.spec import json_schema, load_spec
from tests.support.cli import ROOT
from tests.support.specs import small_spec

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def write(folder: Path, text: str) -> Path:
    path = folder / "model.yaml"
    path.write_text(text)
    return path


def problems(source: Any, **options: Any) -> list[str]:
    with pytest.raises(SpecProblem) as caught:
        load_spec(source, **options)
    return [str(problem) for problem in caught.value.problems]


def spec_with(**overrides: Any) -> dict[str, Any]:
    return small_spec(**overrides)


def test_a_number_without_a_dot_is_a_number(tmp_path: Path) -> None:
    text = yaml.safe_dump(spec_with(training__optimizer=None)).replace(
        "training:\n", "training:\n  optimizer: {class_name: Adam, config: {learning_rate: 1e-4}}\n"
    )
    optimizer = load_spec(write(tmp_path, text)).spec.training.optimizer
    assert optimizer.config == {"learning_rate": 1e-4}  # type: ignore[union-attr]


def test_all_problems_of_a_file_are_shown_at_once_with_file_line_and_key(tmp_path: Path) -> None:
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
    shown = problems(path)
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
    ("overrides", "said"),
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
def test_each_wrong_value_names_its_key_and_what_is_accepted(overrides: dict[str, Any], said: str) -> None:
    shown = problems(spec_with(**overrides))
    assert any(said in line for line in shown), shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- a\n- list\n", ":1: expected a mapping with model, dataset, ...; got a list"),
        ("just words\n", "got a single value"),
        ("a: [1, 2\n", "not valid YAML"),
        ("a: b: c\n", ":1: not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("? [a, b]\n: 1\n", "a key must be a word"),
        ("a: .inf\n", ":1: '.inf' is neither text nor a finite number"),
        ("a: 2024-01-02\n", "quote it if it is text"),
        ("a: 2024-13-02\n", ":1: '2024-13-02' is not a valid timestamp; quote it if it is text"),
        ("a: !!int ''\nb: !!bool no-one\n", ":1: '' is not a valid int"),
        ("a: !!binary aGk=\n", "neither text nor a finite number"),
        ("a: &a [*a]\n", "nested more than 50 levels deep"),
        ("[" * 5000, "nested more than 50 levels deep"),
    ],
)
def test_text_that_is_no_spec_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (line,) = problems(write(tmp_path, text))
    assert said in line
    assert "model.yaml" in line


def test_a_yaml_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (line,) = problems(write(tmp_path, "\n".join(levels)))
    assert "aliases expand this to more than 100,000 values" in line


def test_a_file_of_fifty_megabytes_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 1000**2)
    assert "too large for a spec; at most 1,048,576 bytes are read" in problems(path)[0]


def test_a_device_that_never_ends_is_not_read_to_its_end() -> None:
    assert "too large for a spec" in problems(Path("/dev/zero"))[0]


@pytest.mark.parametrize("junk", [b"\x00\x01\x02", b"\xff\xfe\x00binary", bytes(range(256))])
def test_binary_junk_is_named_as_such(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "model.yaml"
    path.write_bytes(junk)
    assert "not text" in problems(path)[0] or "not valid YAML" in problems(path)[0]


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    assert problems(tmp_path / "none.yaml") == [f"{tmp_path / 'none.yaml'}: no such file"]
    assert problems(tmp_path) == [f"{tmp_path}: this is a folder, not a spec file"]


def test_an_override_beats_the_spec_and_is_named_when_it_is_wrong() -> None:
    loaded = load_spec(spec_with(), settings=["search.batch_size=[8, 16]", "training.optimizer=adam"])
    assert loaded.spec.space.batch_sizes == (8, 16)
    assert loaded.spec.training.optimizer == "adam"
    assert problems(spec_with(), settings=["search.resolution=-1"]) == [
        "--set search.resolution: search.resolution: expected 0 or more; got -1"
    ]


def test_a_number_in_an_override_is_a_place_in_a_list() -> None:
    loaded = load_spec(spec_with(), settings=["model.layers.1.Dense.units=7"])
    assert isinstance(loaded.spec.model, Layers)
    assert loaded.spec.model.layers[1].config["units"] == 7
    assert len(loaded.spec.model.layers) == 4
    assert "--set model.layers.1" in problems(spec_with(), settings=["model.layers.1=7"])[0]


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
def test_an_override_that_is_none_is_bad_usage(setting: str) -> None:
    with pytest.raises(UsageProblem, match="--set"):
        load_spec(spec_with(), settings=[setting])


def test_a_flag_for_the_limit_replaces_the_specs_own_way_of_setting_it() -> None:
    loaded = load_spec(spec_with(), flags={"device.like": ("--like", "T4")})
    assert (loaded.spec.device.like, loaded.spec.device.memory_limit_bytes) == ("T4", None)


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        (32, [32]),
        ([64, 8, 8, 16], [8, 16, 64]),
        ({"min": 1, "max": 5}, [1, 2, 3, 4, 5]),
        ({"min": 5, "max": 33, "multiple_of": 8}, [8, 16, 24, 32]),
    ],
)
def test_an_axis_is_a_number_a_list_or_a_range(axis: Any, values: list[int]) -> None:
    space = load_spec(spec_with(search__batch_size=axis, search__sequence_length=axis)).spec.space
    assert list(space.batch_sizes) == values
    assert space.sequence_lengths == tuple(values)


def test_a_batch_above_the_effective_one_is_not_searched() -> None:
    space = load_spec(spec_with(training__effective_batch_size=100)).spec.space
    assert space.batch_sizes[-1] == 100


@pytest.mark.parametrize("objective", list(Objective))
def test_every_objective_is_understood(objective: Objective) -> None:
    loaded = load_spec(spec_with(search__objective=objective.value, search__sequence_length=[4]))
    assert loaded.spec.space.objective is objective


def test_a_tuned_config_is_a_spec_again_and_remembers_its_folder(tmp_path: Path) -> None:
    tuned = {"format": 1, "batch_size": 8, "precision": "float32", "folder": "..", "evidence": {"oomtune": "0.1.0"}}
    path = tmp_path / "out" / "model.tuned.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({**spec_with(), "tuned": tuned}))
    loaded = load_spec(path)
    assert loaded.was_tuned
    assert loaded.spec.folder == str(tmp_path)
    assert loaded.spec.name == "model"
    assert "tuned" not in loaded.values


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_loads_and_validates_against_the_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), json_schema())
    load_spec(path)


@pytest.mark.parametrize(
    "overrides", [{"search__batch_size": "many"}, {"device__kind": "tpu"}, {"model__layers": [{"A": {}, "B": {}}]}]
)
def test_the_schema_refuses_what_the_loader_refuses(overrides: dict[str, Any]) -> None:
    values = json.loads(json.dumps(spec_with(**overrides)))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, json_schema())
    assert problems(values)


def test_the_digest_changes_with_the_spec_and_not_with_its_layout(
    tmp_path: Path, spec_file: Callable[..., Path]
) -> None:
    first = load_spec(spec_file("a.yaml"))
    flow = tmp_path / "b.yaml"
    flow.write_text(json.dumps(spec_with()))
    assert load_spec(flow).sha256 == first.sha256
    assert load_spec(spec_file("c.yaml", search__resolution=0.01)).sha256 != first.sha256
