"""The command line on a real terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.support.cli import Cli


def on_a_terminal(cli: Cli, *words: str | Path) -> tuple[int, str]:
    """Run the command on a terminal; return its exit code and what it drew."""
    ours, theirs = pty.openpty()
    environment = {**cli.environment, "TERM": "xterm-256color", "COLUMNS": "110", "LINES": "40"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "oomtune", *map(str, words)],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=cli.folder, env=environment,
    )  # fmt: skip
    os.close(theirs)
    drawn = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other side has closed
            break
        if not chunk:
            break
        drawn += chunk
    os.close(ours)
    return process.wait(timeout=60), drawn.decode(errors="replace")
