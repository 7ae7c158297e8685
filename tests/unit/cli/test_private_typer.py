"""Each private name of Typer that oomtune relies on exists in the installed release."""

from __future__ import annotations

import inspect
from importlib import import_module
from operator import attrgetter

import pytest
import typer

from oomtune.cli.private_typer import TyperError

NAMES = [
    ("typer._completion_shared", "get_completion_script"),
    ("typer._completion_shared", "install"),
    ("typer.core", "TyperGroup.invoke"),
    ("typer.core", "TyperCommand.collect_usage_pieces"),
    ("typer.core", "TyperCommand.format_options"),
]
HINT = "find its replacement, or give typer an upper bound in pyproject.toml"


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda value: value)
def test_typer_still_has_each_private_name(module: str, name: str) -> None:
    try:
        attrgetter(name)(import_module(module))
    except (ImportError, AttributeError):
        pytest.fail(f"Typer {typer.__version__} no longer has {module}.{name}: {HINT}")


@pytest.mark.parametrize("name", ["get_completion_script", "install"])
def test_the_completion_functions_still_take_the_same_arguments(name: str) -> None:
    function = getattr(import_module("typer._completion_shared"), name)
    missing = {"shell", "prog_name", "complete_var"} - inspect.signature(function).parameters.keys()
    assert not missing, f"{name} of Typer {typer.__version__} no longer takes {missing}: {HINT}"


def test_all_errors_of_typer_have_the_base_that_main_catches() -> None:
    assert issubclass(typer.BadParameter, TyperError)
    assert issubclass(TyperError, Exception)
    assert TyperError.__name__ in ("ClickException", "TyperException"), f"Typer {typer.__version__}: {HINT}"
    assert typer.BadParameter("wrong").format_message().endswith("wrong")
