"""`oomtune diagnose LOG`: was it memory, which tensor and op, and what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from oomtune.cli import options
from oomtune.cli.streams import facts_table, stdout_console
from oomtune.errors import UsageProblem

if TYPE_CHECKING:
    from oomtune.diagnosis import Diagnosis
    from oomtune.diagnosis.remedy import Remedy

Log = Annotated[str, typer.Argument(metavar="LOG", help="The log of a failed run; - is stdin.", show_default=False)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show what happened, not what to do.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show the whole line, and what the log leaves open.")]


def command(
    log: Log,
    as_json: options.Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Read a crash log: was it memory, which tensor and op, how full was the allocator, and what to do.

    Understands the logs of any TensorFlow version.

    \b
    Examples:
      oomtune diagnose train.log
      python train.py 2>&1 | oomtune diagnose -
      zcat train.log.gz | oomtune diagnose - --json

    Exit codes: 0 it ran out of memory, 2 bad usage or no failure in the log, 3 it failed for another reason.
    """
    from oomtune.commands.diagnose import diagnose_file, diagnose_stream

    read = diagnose_stream(_stdin(), "stdin") if log == "-" else diagnose_file(log)
    if as_json:
        from oomtune.report.json_document import diagnosis_document

        print(json.dumps(diagnosis_document(read.diagnosis, read.remedies, read.exit_code)))
    else:
        _print_diagnosis(read.diagnosis, [] if quiet else read.remedies, verbose=verbose, no_color=no_color)
    return read.exit_code


def _stdin() -> BinaryIO:
    if sys.stdin is None:  # `<&-`
        raise UsageProblem("stdin is closed", hint="pipe the log into it: python train.py 2>&1 | oomtune diagnose -")
    return sys.stdin.buffer


def _print_diagnosis(diagnosis: Diagnosis, remedies: Iterable[Remedy], *, verbose: bool, no_color: bool) -> None:
    from rich.text import Text

    from oomtune.report.terminal import diagnosis_rows, diagnosis_sentence

    console = stdout_console(no_color=no_color)
    console.print(Text(diagnosis_sentence(diagnosis), style="bold red" if diagnosis.is_memory else "bold"))
    if diagnosis.line:
        console.print()
        console.print(facts_table(diagnosis_rows(diagnosis, with_unknown=verbose)))
    for number, remedy in enumerate(remedies, 1):
        if number == 1:
            console.print(Text("\nWhat to do:"))
        console.print(Text(f" {number}. {remedy.what}"))
        # One line to paste into a spec; the comment is for a spec that has such a section already.
        spec = f"{remedy.spec_line}  # or: {remedy.set_flag}" if remedy.key else ""
        for line, style in ((spec, "green"), (remedy.code, "cyan")):
            if line:
                console.print(Text(f"      {line}", style=style), soft_wrap=True)
