"""Options that mean the same in every command. A flag beats OOMTUNE_* in the environment, which beats the spec."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oomtune.cli import completion as completing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from oomtune.domain.observer import Observer

SpecOrArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SPEC", help="The spec, a YAML file; with --script, that script's arguments.", show_default=False
    ),
]
Script = Annotated[
    Path | None,
    typer.Option(
        "--script", metavar="FILE.py", show_default=False,
        help="Probe this training script instead; its arguments follow --, with {batch_size} in them.",
    ),
]  # fmt: skip
Device = Annotated[
    str | None,
    typer.Option(
        "--device", envvar="OOMTUNE_DEVICE", metavar="auto|gpu|cpu", help="Where to probe.", show_default=False,
        autocompletion=completing.devices,
    ),
]  # fmt: skip
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", envvar="OOMTUNE_MEMORY_LIMIT", metavar="SIZE", help="The hard limit, e.g. 2GiB or 1500MB.",
        show_default=False,
    ),
]  # fmt: skip
Like = Annotated[
    str | None,
    typer.Option(
        "--like", envvar="OOMTUNE_LIKE", metavar="GPU", help="The limit of this card, e.g. T4 or 'RTX 3090'.",
        show_default=False, autocompletion=completing.gpus,
    ),
]  # fmt: skip
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one entry of the spec. Repeatable.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress, only the answer.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="One line a trial, and why it ended as it did.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours; so does NO_COLOR in the environment.")]

# Of `probe` alone.
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="Where to write; SPEC.tuned.yaml by default.", show_default=False
    ),
]
ObjectiveName = Annotated[
    str | None,
    typer.Option(
        "--objective", envvar="OOMTUNE_OBJECTIVE", metavar="NAME",
        help="tokens, batch_size, sequence_length or throughput.", show_default=False,
        autocompletion=completing.objectives,
    ),
]  # fmt: skip
Frontier = Annotated[bool, typer.Option("--frontier", help="Run every lane to its edge, not only the winner's.")]
MaxTrials = Annotated[
    int | None, typer.Option("--max-trials", metavar="N", help="Stop after so many trials.", show_default=False)
]
TimeLimit = Annotated[
    str | None, typer.Option("--time-limit", metavar="TIME", help="Stop after, e.g. 10m.", show_default=False)
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over; ignore the ledger of earlier runs.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that oomtune did not write.")]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", help="Also draw it, as one HTML file.", show_default=False),
]
Summary = Annotated[
    Path | None, typer.Option("--summary", metavar="FILE.md", help="Also write Markdown.", show_default=False)
]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE.xml", help="Also write JUnit XML.", show_default=False)
]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE.csv", help="Also write every size that ran.", show_default=False)
]
TensorBoard = Annotated[
    Path | None,
    typer.Option("--tensorboard", metavar="LOGDIR", help="Also write TensorBoard HParams.", show_default=False),
]


def one_limit(context: typer.Context, memory_limit: str | None, like: str | None) -> tuple[str | None, str | None]:
    """Two ways to set the limit, and a flag beats the environment: also when each says it in the other way."""
    if memory_limit is not None and like is not None:
        if _from_environment(context, "like"):
            return memory_limit, None
        if _from_environment(context, "memory_limit"):
            return None, like
    return memory_limit, like


def without_environment(context: typer.Context, **values: str | None) -> tuple[str | None, ...]:
    """These options, where a flag beside them beats what the environment says of them."""
    return tuple(None if _from_environment(context, name) else value for name, value in values.items())


def _from_environment(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "ENVIRONMENT"


def console_for(stream: str, *, no_color: bool) -> Console:
    """A console on stdout or stderr; off a terminal, wide enough not to break lines that scripts read."""
    from rich.console import Console

    file = sys.stdout if stream == "stdout" else sys.stderr
    width = None if file.isatty() else 120
    return Console(file=file, no_color=no_color or None, width=width, highlight=False)


def facts_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and what each is, without a frame."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


@contextlib.contextmanager
def screen(*, quiet: bool, verbose: bool, no_color: bool) -> Iterator[Observer]:
    """What a person sees on stderr while trials run."""
    if quiet:
        from oomtune.domain.observer import SilentObserver

        yield SilentObserver()
        return
    from oomtune.cli.screen import LineScreen, LiveScreen

    console = console_for("stderr", no_color=no_color)
    if console.is_terminal and not verbose:
        with LiveScreen(console) as screen:
            yield screen
    else:
        yield LineScreen(console, details=verbose)
