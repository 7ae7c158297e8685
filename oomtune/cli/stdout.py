"""stdout as a command needs it: a reader that leaves early (`| head`) ends neither the command nor its verdict."""

from __future__ import annotations

import io
import os
import sys


class PatientStdout(io.TextIOWrapper):
    """stdout that goes on to nowhere once its reader has left."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            to_nowhere()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            to_nowhere()
            super().flush()


def be_patient() -> None:
    """Make stdout outlast its reader, for as long as this process runs."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # which it is not where it was closed
        before = sys.stdout
        encoding, errors, by_line = before.encoding, before.errors, before.line_buffering
        sys.stdout = PatientStdout(before.detach(), encoding=encoding, errors=errors, line_buffering=by_line)


def to_nowhere() -> None:
    """Nothing more can be written, not even when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
