"""stdout and stderr as a command needs them: a reader that leaves early (`| head`) ends neither the command nor its
verdict, nor does a stderr that is closed or on a full disk."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO


class PatientStdout(io.TextIOWrapper):
    """stdout that goes on to nowhere once its reader has left."""

    given_up_for: type[OSError] = BrokenPipeError

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except self.given_up_for:
            to_nowhere(self.fileno())
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except self.given_up_for:
            to_nowhere(self.fileno())
            super().flush()


class PatientStderr(PatientStdout):
    """stderr, which the answer does not depend on: whatever keeps it from being written."""

    given_up_for = OSError


def be_patient() -> None:
    """Make both outlast whoever reads them, for as long as this process runs."""
    sys.stdout = _outlasting(sys.stdout, 1, PatientStdout)
    sys.stderr = _outlasting(sys.stderr, 2, PatientStderr)


def _outlasting(before: TextIO | None, descriptor: int, kind: type[PatientStdout]) -> TextIO:
    if before is None:  # it was closed (`2>&-`), and the next file that is opened would be in its place
        to_nowhere(descriptor)
        return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
    if not isinstance(before, io.TextIOWrapper):
        return before
    encoding, by_line = before.encoding, before.line_buffering
    # The name of a file need not be text, and not every terminal has every character.
    errors = "backslashreplace" if before.errors == "strict" else before.errors
    return kind(before.detach(), encoding=encoding, errors=errors, line_buffering=by_line)


def to_nowhere(descriptor: int) -> None:
    """Nothing more can be written to it, not even when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
