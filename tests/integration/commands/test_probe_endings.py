"""Probes that find nothing, are stopped, or are called wrongly: exit codes and messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.cli import Cli
from tests.support.specs import small_spec


def test_nothing_fits_exits_3_with_the_need_of_the_smallest_and_three_things_to_try(
    cli: Cli, spec_file: Callable[..., Path]
) -> None:
    spec = spec_file(model__layers=[{"Input": {"shape": [64]}}, {"Dense": {"units": 300_000}}, {"Dense": {"units": 1}}])
    words = ("probe", spec, "--device", "cpu", "--memory-limit", "64MiB", "--json")
    ran = cli(*words)
    assert ran.code == 3
    error = ran.document["error"]
    assert "the smallest configuration tried was batch 1" in error["message"]
    assert "it needs" in error["message"]
    assert len(error["hint"].splitlines()) == 3
    limit = error["hint"].split("--memory-limit ")[1].split()[0]
    assert not (cli.folder / "model.tuned.yaml").exists()
    hurried = cli(*words, "--time-limit", "0.01s")
    assert (hurried.code, hurried.document["new_trials"]) == (3, 0)
    assert "it needs" not in hurried.document["error"]["message"]
    enough = cli("probe", spec, "--memory-limit", limit, "--set", "search.batch_size=1", "--json")
    assert enough.code == 0, enough.err


def test_max_trials_exits_7_and_the_answer_says_that_it_is_the_best_so_far(
    cli: Cli, spec_file: Callable[..., Path]
) -> None:
    ran = cli("probe", spec_file(), "--max-trials", "1", "--json")
    assert (ran.code, ran.document["verdict"]) == (7, "stopped")
    evidence = yaml.safe_load((cli.folder / "model.tuned.yaml").read_text())["tuned"]["evidence"]
    assert evidence["confirmed"] is False
    assert "--max-trials" in evidence["stopped"]
    finished = cli("probe", spec_file(), "--json")
    assert finished.code == 0
    assert finished.document["new_trials"] == len(finished.document["trials"]) - 1


def test_time_limit_exits_7(cli: Cli, spec_file: Callable[..., Path]) -> None:
    ran = cli("probe", spec_file(), "--time-limit", "0.01s", "--json")
    assert (ran.code, ran.document["error"]["code"]) == (7, "time_limit")
    assert ran.document["best"] is None


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--device", "gpu"], 5, "no_such_device"),
        (["--memory-limit", "9000GiB"], 5, "budget_too_large"),
        (["-o", "no/such/folder/x.yaml"], 5, "output_not_writable"),
        (["-o", "/proc/x.yaml"], 5, "output_not_writable"),
        (["-o", "x" * 300], 5, "output_not_writable"),
        (["-o", "."], 2, "usage"),
        (["--memory-limit", "lots"], 2, "spec"),
        (["--like", "RTX 9999"], 2, "usage"),
        (["--like", "T4", "--memory-limit", "1GiB"], 2, "usage"),
        (["--device", "tpu"], 2, "spec"),
        (["--objective", "speed"], 2, "spec"),
        (["--max-trials", "0"], 2, "usage"),
        (["--time-limit", "soon"], 2, "usage"),
        (["--set", "search.batch_size"], 2, "usage"),
        (["--no-such-option"], 2, "usage"),
    ],
)
def test_bad_usage_has_its_exit_code_and_one_json_document(
    cli: Cli, spec_file: Callable[..., Path], words: list[str], code: int, error: str
) -> None:
    ran = cli("probe", spec_file(), *words, "--json")
    assert (ran.code, ran.document["exit_code"], ran.document["error"]["code"]) == (code, code, error)
    assert ran.document["error"]["message"]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("text", [None, "", "- a list\n", "a: [", "model: {}\n"])
def test_a_bad_spec_exits_2_and_names_the_file(cli: Cli, text: str | None) -> None:
    path = cli.folder / "bad.yaml"
    if text is not None:
        path.write_text(text)
    ran = cli("probe", path)
    assert ran.code == 2
    assert ran.out == ""
    assert str(path) in ran.err
    assert "Traceback" not in ran.err


def test_a_folder_name_that_is_not_valid_text_can_be_probed_and_reported(cli: Cli) -> None:
    folder = cli.folder / os.fsdecode(b"caf\xe9")
    (folder / ".oomtune").mkdir(parents=True)
    (folder / "data.csv").write_text("x,y\n" + "1,2\n" * 40)
    (folder / "mine.py").write_text(
        "import keras\n"
        "def build():\n    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])\n"
        "def broken():\n    raise ValueError('no')\n"
    )
    data = {"csv": {"path": "data.csv", "inputs": ["x"], "targets": "y"}}
    values = small_spec(model={"builder": "mine:build"}, dataset=data, search__batch_size={"max": 4})
    spec, page = folder / "model.yaml", folder / "out.html"
    spec.write_text(yaml.safe_dump(values))
    strict = {"PYTHONIOENCODING": "utf-8:strict"}
    ran = cli("probe", spec, "--report", page, env=strict)
    assert ran.code == 0, ran.err
    assert r"caf\udce9" in ran.out
    assert r"caf\udce9" in page.read_text()
    assert "resuming after" in cli("probe", spec, env=strict).err
    failed = cli("probe", spec, "--set", "model.builder=mine:broken", env=strict)
    assert failed.code == 6
    assert failed.err.endswith("oomtune: ValueError: no\n")
