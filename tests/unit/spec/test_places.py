"""Where the entries of a spec were written, for what is found to be wrong with them later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from oomtune.commands.prepare import Preparation
from oomtune.domain.observer import SilentObserver
from oomtune.errors import SpecProblem, UsageProblem
from oomtune.spec import load_spec
from tests.support.specs import small_spec

WRONG = {"int": {"shape": ["x"]}, "b[0]": {"shape": [-1]}}


def write(folder: Path, **overrides: Any) -> Path:
    path = folder / "model.yaml"
    path.write_text(yaml.safe_dump(small_spec(**overrides), sort_keys=False))
    return path


def test_a_card_that_is_not_in_the_catalogue_is_named_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, device={"kind": "cpu", "like": "RTX 9999"})
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "like" in text)
    worker: Any = object()  # resolving a CPU asks no worker
    preparation = Preparation(SilentObserver(), worker)
    with pytest.raises(UsageProblem) as caught:
        preparation.resolve_device(load_spec(path))
    assert caught.value.where == f"{path}:{line}"
    with pytest.raises(UsageProblem) as caught:
        preparation.resolve_device(load_spec(path, flags={"device.like": ("--like", "RTX 8888")}))
    assert str(caught.value).startswith("--like: no card 'RTX 8888'")


def test_an_entry_is_found_by_its_dotted_key(tmp_path: Path) -> None:
    path = write(tmp_path)
    loaded = load_spec(path)
    assert loaded.place("model.layers[1]") == f"{path}:6"
    assert loaded.place("dataset.synthetic.inputs.nothing").endswith(":16")


def test_a_key_that_looks_like_a_word_of_the_checker_is_named_like_any_other(tmp_path: Path) -> None:
    path = write(tmp_path, trial=None, dataset__synthetic__inputs=WRONG)
    path.write_text(path.read_text() + "trial: {<<: {steps: 2}}\n")
    with pytest.raises(SpecProblem) as refused:
        load_spec(path)
    said = [str(problem).partition(": ")[2] for problem in refused.value.problems]
    assert said == [
        "dataset.synthetic.inputs.int.shape[0]: expected a whole number or sequence_length; got 'x'",
        "dataset.synthetic.inputs.b[0].shape[0]: expected 1 or more or sequence_length; got -1",
        "trial.<<: unknown key; known here: warmup_steps, steps, confirm_steps, timeout",
    ]
    del said[-1]  # what is given as values has no line, and names its keys all the same
    with pytest.raises(SpecProblem) as refused:
        load_spec(small_spec(dataset__synthetic__inputs=WRONG, int=1))
    assert [str(problem).partition(": ")[2] for problem in refused.value.problems][:2] == said
    assert "spec: int: unknown key" in str(refused.value)
