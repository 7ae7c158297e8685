"""What `oomtune schema SPEC...` does: validate specs without running anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from oomtune.errors import Problem, SpecProblem
from oomtune.spec import load_spec


def validate_specs(paths: Iterable[Path], on_valid: Callable[[Path], None]) -> None:
    """Call `on_valid` for every valid spec, then raise `SpecProblem` with the problems of all others."""
    problems: list[Problem] = []
    for path in paths:
        try:
            load_spec(path)
        except SpecProblem as error:
            problems += error.problems
        else:
            on_valid(path)
    if problems:
        raise SpecProblem(problems)
