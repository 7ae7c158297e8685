"""stdout, which carries the answer, and stderr, which carries the conversation.

A reader that leaves early (`| head`), a closed stderr or one on a full disk changes neither the run nor its verdict.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Lines that scripts read must not break where nobody sees a terminal's width.
_COLUMNS_OFF_A_TERMINAL = 120


def print_document(command: str, verdict: str, *, exit_code: int = 0, **entries: Any) -> None:
    """Print a command's one JSON document."""
    from oomtune.report.json_document import json_document

    print(json.dumps(json_document(command, exit_code, verdict, entries)))


def print_problem(message: str, *, hint: str = "", traceback: str = "") -> None:
    """Print what went wrong and what to do next on stderr, after the traceback of the user's own code."""
    print(traceback, end="", file=sys.stderr)
    for line in message.splitlines():
        print(f"oomtune: {line}", file=sys.stderr)
    for line in hint.splitlines():
        print(f"  {line}", file=sys.stderr)


def stdout_console(*, no_color: bool) -> Console:
    return _console(sys.stdout, no_color=no_color)


def stderr_console(*, no_color: bool) -> Console:
    return _console(sys.stderr, no_color=no_color)


def _console(file: TextIO, *, no_color: bool) -> Console:
    from rich.console import Console

    width = None if file.isatty() else _COLUMNS_OFF_A_TERMINAL
    return Console(file=file, no_color=no_color or None, width=width, highlight=False)


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and values without a frame."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


class LastingStdout(io.TextIOWrapper):
    """stdout that discards what is written once its reader has left."""

    ignored_error: type[OSError] = BrokenPipeError

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except self.ignored_error:
            discard(self.fileno())
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except self.ignored_error:
            discard(self.fileno())
            super().flush()


class LastingStderr(LastingStdout):
    """stderr that discards what can't be written for any reason, because the answer does not depend on it."""

    ignored_error = OSError


def make_streams_last() -> None:
    """Let this process run to its end even when nobody reads its stdout or stderr any more."""
    sys.stdout = _lasting(sys.stdout, 1, LastingStdout)
    sys.stderr = _lasting(sys.stderr, 2, LastingStderr)


def _lasting(stream: TextIO | None, descriptor: int, kind: type[LastingStdout]) -> TextIO:
    if stream is None:  # it was closed (`2>&-`), and the next file to be opened would take its descriptor
        discard(descriptor)
        return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, by_line = stream.encoding, stream.line_buffering
    # File names need not be valid text, and not every terminal has every character.
    errors = "backslashreplace" if stream.errors == "strict" else stream.errors
    return kind(stream.detach(), encoding=encoding, errors=errors, line_buffering=by_line)


def discard(descriptor: int) -> None:
    """Discard everything written to the descriptor from now on, also when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
