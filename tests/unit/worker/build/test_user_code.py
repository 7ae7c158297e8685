"""The user's own code: the arguments it gets, and which specs run any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oomtune.commands.prepare import unfenced_code_notices
from oomtune.domain import Candidate, runs_users_code
from oomtune.errors import TrialCrashed
from oomtune.worker.build.user_code import arguments_for
from tests.support.specs import small_probe_spec

AT_A_LENGTH = Candidate(batch_size=4, sequence_length=16)
WITHOUT_A_LENGTH = Candidate(batch_size=4)


def by_default(sequence_length: int = 128) -> None: ...
def insisting(sequence_length: int | None, precision: str) -> None: ...
def taking_more(units: int, **more: Any) -> None: ...
def taking_both(batch_size: int, **more: Any) -> None: ...
def taking_the_candidate(candidate: Candidate) -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "candidate", "expected"),
    [
        (by_default, {}, AT_A_LENGTH, {"sequence_length": 16}),
        (by_default, {}, WITHOUT_A_LENGTH, {}),
        (by_default, {"sequence_length": 9}, WITHOUT_A_LENGTH, {"sequence_length": 9}),
        (insisting, {}, WITHOUT_A_LENGTH, {"sequence_length": None, "precision": "float32"}),
        (taking_more, {"units": 3, "depth": 2}, AT_A_LENGTH, {"units": 3, "depth": 2}),
        (taking_both, {}, AT_A_LENGTH, {"batch_size": 4}),
        (taking_the_candidate, {}, AT_A_LENGTH, {"candidate": AT_A_LENGTH}),
    ],
)
def test_a_function_gets_the_arguments_it_names_and_keeps_its_defaults(
    function: Callable[..., Any], args: dict[str, Any], candidate: Candidate, expected: dict[str, Any]
) -> None:
    assert arguments_for(function, args, candidate, "own:function") == expected


def test_a_missing_argument_is_reported() -> None:
    with pytest.raises(TrialCrashed, match="own:function needs 'units'"):
        arguments_for(taking_more, {}, AT_A_LENGTH, "own:function")


@pytest.mark.parametrize(
    ("entries", "runs"),
    [
        ({}, False),
        ({"model": {"builder": "own:build"}}, True),
        ({"model": {"layers": ["Flatten", {"own:Gate": {}}]}}, True),
        ({"model": {"layers": [{"RNN": {"cell": {"own:Cell": {"units": 2}}}}]}}, True),
        ({"model": {"layers": [{"Bidirectional": {"layer": {"LSTM": {"units": 2}}}}]}}, False),
        ({"model": {"train_step": "own:make"}, "training": None}, True),
        ({"dataset": {"python": "own:data"}}, True),
    ],
)
def test_running_the_users_code_without_a_sandbox_prints_a_warning(entries: dict[str, Any], runs: bool) -> None:
    spec = small_probe_spec(**entries)
    assert runs_users_code(spec.model, spec.dataset) == runs
    assert bool(unfenced_code_notices(spec, lambda: False)) == runs
    assert unfenced_code_notices(spec, lambda: True) == []
