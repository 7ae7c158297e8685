"""The commands as Typer's classes, where theirs would say or do something else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer
import typer.core

_TYPE = re.compile(r" <[^<>]+>$")


class Commands(typer.core.TyperGroup):
    """The commands. Typer itself would end an interrupted one without a word, and without the document."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


class Command(typer.core.TyperCommand):
    """One command, whose help and usage call an argument the same: `SPEC`, not `SPEC <list[str]>` or `{SPEC}`."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [re.sub(r"^\{(.+)\}$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write = formatter.write_dl

        def without_types(rows: Sequence[tuple[str, str]], *args: Any, **kwargs: Any) -> None:
            write([(_TYPE.sub("", name), text) for name, text in rows], *args, **kwargs)

        formatter.write_dl = without_types
        super().format_options(ctx, formatter)
