"""`oomtune diagnose LOG`: was it memory, which tensor and op, and what to do."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from oomtune.cli import options
from oomtune.errors import UsageProblem

if TYPE_CHECKING:
    from oomtune.diagnosis import Diagnosis
    from oomtune.diagnosis.remedy import Remedy

_BLOCK = 1024**2
_BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_TEXT_CONTROLS = b"\t\n\r\b\f\x1b\0"  # NULs are what is left of UTF-16, and of logs cut short by a crash
_MOST_CONTROLS = 0.05
_BLANK = b" \t\r\n\f\0"

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
    from oomtune.diagnosis import diagnose
    from oomtune.diagnosis.remedies import remedies

    if log == "-":
        found = diagnose(_blocks(_stdin(), "stdin"))
    else:
        with _opened(log) as file:
            found = diagnose(_blocks(file, log))
    code = 0 if found.is_memory else 3 if found.failed else 2
    advice = remedies(found)
    if as_json:
        from oomtune.report.diagnosis import diagnosis_document

        print(json.dumps(diagnosis_document(found, advice, code)))
    else:
        _show(found, [] if quiet else advice, verbose=verbose, no_color=no_color)
    return code


def _stdin() -> BinaryIO:
    if sys.stdin is None:  # `<&-`
        raise UsageProblem("stdin is closed", hint="pipe the log into it: python train.py 2>&1 | oomtune diagnose -")
    return sys.stdin.buffer


def _opened(log: str) -> BinaryIO:
    try:
        return Path(log).open("rb")
    except FileNotFoundError:
        raise UsageProblem(f"no such file: {log}", hint="give the log of the run that failed, or - for stdin") from None
    except IsADirectoryError:
        raise UsageProblem(f"{log} is a folder", hint="give the log itself") from None
    except (OSError, ValueError) as error:
        raise UsageProblem(f"{log} can't be read: {error}") from None


def _blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The log in pieces, as UTF-8 where it says that it is not."""
    from oomtune.diagnosis.encodings import as_utf8

    first = _first(file, name)
    encoding = _BOMS.get(first[:2])
    if encoding is None and _is_binary(first[: 64 * 1024]):
        raise UsageProblem(f"{name} is not text", hint="if it is compressed: zcat LOG | oomtune diagnose -")
    pieces = _and_rest(first, file, name)
    return pieces if encoding is None else as_utf8(pieces, encoding)


def _first(file: BinaryIO, name: str) -> bytes:
    """The first piece that has something in it. A log that was cut while it was written to begins with NULs."""
    lines = 0
    while piece := _read(file, name):
        said = piece.lstrip(b"\0")
        if said.strip(_BLANK):
            return b"\n" * lines + (said if len(said) < len(piece) - 1 else piece)
        lines += piece.count(b"\n")
    raise UsageProblem(f"{name} is empty", hint="did the run write to another file? `2>&1` sends errors there too")


def _and_rest(first: bytes, file: BinaryIO, name: str) -> Iterator[bytes]:
    yield first
    while piece := _read(file, name):
        yield piece


def _read(file: BinaryIO, name: str) -> bytes:
    try:
        return file.read(_BLOCK)
    except OSError as error:
        raise UsageProblem(f"{name} can't be read: {error.strerror}") from None


def _is_binary(head: bytes) -> bool:
    controls = sum(head.count(bytes([byte])) for byte in range(32) if byte not in _TEXT_CONTROLS)
    return controls > _MOST_CONTROLS * len(head) or head.count(b"\0") > 0.6 * len(head)


def _show(found: Diagnosis, advice: Iterable[Remedy], *, verbose: bool, no_color: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from oomtune.report.diagnosis import fact_rows, sentence

    console = options.console_for("stdout", no_color=no_color)
    console.print(Text(sentence(found), style="bold red" if found.is_memory else "bold"))
    if found.line:
        table = Table(box=None, show_header=False, padding=(0, 1))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in fact_rows(found, whole=verbose):
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
