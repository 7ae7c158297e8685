"""The `search` section: its search space, and the errors of a section without one."""

from __future__ import annotations

from typing import Any

import pytest

from oomtune.domain import Candidate, ClassConfig, Objective, Remat, RematLayers, RematMode
from oomtune.errors import SpecProblem
from oomtune.spec import load_spec
from tests.support.specs import small_probe_spec, small_spec

NONE, FULL = RematMode.NONE, RematMode.FULL


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"search__sequence_length": {"max": 10**6}}, "search.sequence_length: gives 1,000,000 lengths"),
        (
            {"search__sequence_length": {"percentiles": [90], "max": 64}},
            "search.sequence_length.max: percentiles and max exclude each other",
        ),
        ({"search__objective": "sequence_length"}, "search.objective: needs search.sequence_length, which is not set"),
        ({"training__effective_batch_size": 2, "search__batch_size": [4, 8]}, "expected at least the smallest batch"),
        (
            {"training__effective_batch_size": 6, "search__batch_size": [4, 8], "search__min_batch_size": 5},
            "training.effective_batch_size: expected at least the smallest batch size, 8; got 6",
        ),
        ({"search__remat": []}, "search.remat: expected at least 1 entry; got []"),
        ({"search__remat": [3]}, "search.remat[0]: expected none, full, or names of layers"),
        ({"search__remat": ["a,b"]}, "search.remat[0]: expected the name of a layer, without commas; got 'a,b'"),
        ({"search__min_batch_size": 9000}, "search.min_batch_size: expected at most the largest batch size, 8192"),
        ({"search__min_sequence_length": 8}, "search.min_sequence_length: needs search.sequence_length"),
        (
            {"search__min_sequence_length": 65, "search__sequence_length": [32, 64]},
            "search.min_sequence_length: expected at most the longest sequence, 64; got 65",
        ),
        ({"search__optimizer": []}, "search.optimizer: expected at least 1 entry; got []"),
        ({"search__optimizer": ["adam", "Adam"]}, "search.optimizer[1]: adam is listed twice"),
        (
            {
                "training__effective_batch_size": 64,
                "training__optimizer": {"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": "adam"}},
            },
            "training.optimizer: LossScaleOptimizer can't accumulate gradients for training.effective_batch_size",
        ),
        (
            {"training__effective_batch_size": 64, "search__optimizer": ["adam", "LossScaleOptimizer"]},
            "search.optimizer[1]: LossScaleOptimizer can't accumulate gradients",
        ),
        ({"device__memory_growth": "some"}, "device.memory_growth: expected true or false; got 'some'"),
    ],
)
def test_refuses_a_contradictory_search(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecProblem) as caught:
        load_spec(small_spec(**overrides))
    (problem,) = caught.value.problems
    assert message in str(problem)


def test_own_training_code_excludes_searching_optimizers_and_remat(tmp_path: Any) -> None:
    values = {"model": {"train_step": "loop:make"}, "search": {"optimizer": ["adam", "sgd"], "remat": ["full"]}}
    with pytest.raises(SpecProblem) as caught:
        load_spec(values)
    assert [problem.key for problem in caught.value.problems] == ["search.optimizer", "search.remat"]


@pytest.mark.parametrize(
    ("entries", "choices"),
    [
        (["none"], (NONE,)),
        (["full", "none", "full"], (FULL, NONE)),
        (["none", "block_*", "head"], (NONE, RematLayers(("block_*", "head")))),
        (
            ["none", ["block_*"], ["block_*", "head"], "full"],
            (NONE, RematLayers(("block_*",)), RematLayers(("block_*", "head")), FULL),
        ),
    ],
)
def test_layers_outside_a_list_are_one_choice_together(entries: list[Any], choices: tuple[Remat, ...]) -> None:
    assert small_probe_spec(search__remat=entries).space.remats == choices


def test_minimum_sizes_cut_the_axes() -> None:
    space = small_probe_spec(
        search__batch_size=[4, 8, 16],
        search__min_batch_size=5,
        search__sequence_length={"min": 32, "max": 128, "multiple_of": 32},
        search__min_sequence_length=65,
    ).space
    assert space.batch_sizes == (8, 16)
    assert space.sequence_lengths == (96, 128)


def test_each_searched_optimizer_keeps_its_configuration() -> None:
    light = {"class_name": "Adafactor", "config": {"learning_rate": 0.5}}
    spec = small_probe_spec(search__optimizer=["adam", light])
    assert spec.space.optimizers == ("adam", "Adafactor")
    candidate = Candidate(batch_size=1, optimizer="Adafactor")
    assert spec.training.optimizer_of(candidate) == ClassConfig(class_name="Adafactor", config={"learning_rate": 0.5})
    assert spec.training.optimizer_of(Candidate(batch_size=1)) == "sgd"


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
    space = load_spec(small_spec(search__batch_size=axis, search__sequence_length=axis)).spec.space
    assert list(space.batch_sizes) == values
    assert space.sequence_lengths == tuple(values)


def test_a_batch_above_the_effective_one_is_not_searched() -> None:
    space = load_spec(small_spec(training__effective_batch_size=100)).spec.space
    assert space.batch_sizes[-1] == 100


@pytest.mark.parametrize("objective", list(Objective))
def test_accepts_every_objective(objective: Objective) -> None:
    loaded = load_spec(small_spec(search__objective=objective.value, search__sequence_length=[4]))
    assert loaded.spec.space.objective is objective
