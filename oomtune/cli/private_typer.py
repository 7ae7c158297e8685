"""The parts of Typer that have no public interface: its command classes, its errors and shell completion.

`tests/unit/cli/test_private_typer.py` names each and fails when a release drops one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
import typer.core

PROGRAM = "oomtune"
COMPLETE_VARIABLE = "_OOMTUNE_COMPLETE"
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")

# The base of Typer's own errors. It has a public name only from Typer 0.29 on.
TyperError: type[Any] = typer.BadParameter.__mro__[2]

_PYTHON_TYPE = re.compile(r" <[^<>]+>$")
# Typer's script for zsh only registers the function. zsh loads the script to answer the first Tab of a session, so it
# must also answer that one.
_ZSH_ANSWERS_THE_FIRST_TAB = """

if [[ $funcstack[1] == _oomtune ]]; then
  _oomtune_completion "$@"
fi"""


class CommandGroup(typer.core.TyperGroup):
    """All commands. Typer would end an interrupted one silently; this lets `main` report it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


class Command(typer.core.TyperCommand):
    """One command, whose help calls an argument `SPEC`, not `SPEC <list[str]>` or `{SPEC}`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^\{(.+)\}$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_rows = formatter.write_dl

        def write_without_types(rows: Sequence[tuple[str, str]], *args: Any, **kwargs: Any) -> None:
            write_rows([(_PYTHON_TYPE.sub("", name), text) for name, text in rows], *args, **kwargs)

        formatter.write_dl = write_without_types
        super().format_options(ctx, formatter)


def completion_script(shell: str) -> str:
    """Return the script that makes the shell complete oomtune's commands and options."""
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell)
    return script + _ZSH_ANSWERS_THE_FIRST_TAB if shell == "zsh" else script


def install_completion(shell: str) -> Path:
    """Write the script to where the shell looks for it, and return that path."""
    from typer._completion_shared import install

    _, path = install(shell=shell, prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE)
    if shell == "zsh":
        path.write_text(completion_script(shell), encoding="utf-8")
    return path


def current_shell() -> str | None:
    """Return the name of the shell that this process runs in, or None."""
    import shellingham

    try:
        name: str = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        return None
    return name
