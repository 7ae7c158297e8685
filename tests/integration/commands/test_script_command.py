"""A training script that is probed without a spec."""

from __future__ import annotations

import pytest

from tests.support.cli import Cli
from tests.support.own_training import FIT_AND_WRITE, write_script


def test_a_script_needs_no_spec(cli: Cli) -> None:
    write_script(cli.folder, FIT_AND_WRITE)
    (cli.folder / "precious").mkdir()
    wanted = ("--memory-limit", "64MiB", "--set", "search.batch_size.max=512", "--set", "search.resolution=0.2")
    ran = cli("probe", "--script", "train.py", *wanted, "--", "--batch-size", "{batch_size}")
    assert ran.code == 0, ran.err
    assert "python train.py --batch-size 512" in ran.out
    assert sorted(path.name for path in cli.folder.iterdir()) == ["precious", "state", "train.py", "train.tuned.yaml"]
    assert cli("report", "train.py", "--json").document["best"]["batch_size"] == 512
    assert cli("report", "spec.yaml").code == 2  # which there never was
    again = cli("probe", "train.tuned.yaml", "--json")
    assert (again.code, again.document["new_trials"]) == (0, 0), "the tuned config is a spec again"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--script", "train.py"], "expected {batch_size} in one of them"),
        (["--script", "missing.py", "--", "{batch_size}"], "no such file"),
        (["--script", "train.sh", "--", "{batch_size}"], "expected a Python file"),
        (["--script", "train.py", "--", "{batch_size}", "{sequence_length}"], "needs search.sequence_length"),
        (
            ["--script", "train.py", "--set", "search.precision=[float32,mixed_bfloat16]", "--", "{batch_size}"],
            "--set search.precision: search.precision: expected one precision: {precision} is in none of model.script.args",
        ),
        (
            ["--script", "train.py", "--set", "search.sequence_length=[8]", "--", "{batch_size}"],
            "expected {sequence_length} in one of them",
        ),
        (["a.yaml", "b.yaml"], "expected one SPEC"),
        ([], "missing argument 'SPEC'"),
    ],
)
def test_an_unusable_script_is_refused_before_anything_runs(cli: Cli, words: list[str], said: str) -> None:
    write_script(cli.folder, FIT_AND_WRITE)
    ran = cli("probe", *words)
    assert ran.code == 2
    assert said in ran.err
    assert not cli.ledgers()
