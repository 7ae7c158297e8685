"""`oomtune diagnose LOG`: was it memory, which tensor and op, and what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from oomtune.cli import options
from oomtune.errors import UsageProblem

if TYPE_CHECKING:
    from oomtune.diagnosis import Diagnosis
    from oomtune.diagnosis.remedy import Remedy

Log = Annotated[
    str, typer.Argument(metavar="LOG", help="The log of a run that failed; - is stdin.", show_default=False)
]


Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="What happened, without what to do.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="The whole line, and what the log does not tell.")]


def command(
    log: Log,
    as_json: options.Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Read a crash log of any TensorFlow: out of memory or not, which tensor and op, how full it was, what to do.

    \b
    Examples:
      oomtune diagnose train.log
      python train.py 2>&1 | oomtune diagnose -
      zcat train.log.gz | oomtune diagnose - --json

    Exit codes: 0 it ran out of memory, 3 it failed for another reason, 2 there is no failure in the log.
    """
    from oomtune.commands.diagnose import diagnose_file, diagnose_stream

    read = diagnose_stream(_stdin(), "stdin") if log == "-" else diagnose_file(log)
    if as_json:
        from oomtune.report.json_document import diagnosis_document

        print(json.dumps(diagnosis_document(read.diagnosis, read.remedies, read.exit_code)))
    else:
        _show(read.diagnosis, [] if quiet else read.remedies, verbose=verbose, no_color=no_color)
    return read.exit_code


def _stdin() -> BinaryIO:
    if sys.stdin is None:  # `<&-`
        raise UsageProblem("stdin is closed", hint="pipe the log into it: python train.py 2>&1 | oomtune diagnose -")
    return sys.stdin.buffer


def _show(found: Diagnosis, advice: Iterable[Remedy], *, verbose: bool, no_color: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from oomtune.report.terminal import diagnosis_rows, diagnosis_sentence

    console = options.console_for("stdout", no_color=no_color)
    console.print(Text(diagnosis_sentence(found), style="bold red" if found.is_memory else "bold"))
    if found.line:
        table = Table(box=None, show_header=False, padding=(0, 1))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in diagnosis_rows(found, with_unknown=verbose):
            table.add_row(name, Text(value))
        console.print()
        console.print(table)
    for number, remedy in enumerate(advice, 1):
        console.print(Text(f"\nWhat to do:\n {number}. {remedy.what}" if number == 1 else f" {number}. {remedy.what}"))
        # One line to paste into a spec; what is behind the # is for a spec that has such a section.
        spec = f"{remedy.spec_line}  # or: {remedy.set_flag}" if remedy.key else ""
        for line, style in ((spec, "green"), (remedy.code, "cyan")):
            if line:
                console.print(Text(f"      {line}", style=style), soft_wrap=True)
