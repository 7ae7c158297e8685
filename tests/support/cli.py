"""The real command line in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


def _as_from_a_terminal(before: Callable[[], None] | None) -> None:
    """A shell starts what runs in the background deaf to Ctrl-C, and all that it starts in turn: tests too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if before is not None:
        before()


class Cli:
    """The `oomtune` command with a state folder of its own, so that no test sees another's ledgers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OOMTUNE_")}
        self.environment = {**inherited, "XDG_STATE_HOME": str(folder / "state")}

    def __call__(self, *words: str | Path, env: dict[str, str] | None = None, timeout: float = 300) -> Ran:
        process = self.start(*words, env=env)
        out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out, err)

    def start(
        self, *words: str | Path, env: dict[str, str] | None = None, before: Callable[[], None] | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "oomtune", *map(str, words)],
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: _as_from_a_terminal(before),  # noqa: PLW1509 - the test process has no threads of its own
        )

    @property
    def ledger_folder(self) -> Path:
        return self.folder / "state" / "oomtune" / "ledgers"

    def ledgers(self) -> list[Path]:
        return sorted(self.ledger_folder.glob("*.jsonl"))


def processes_with(marker: str) -> list[int]:
    """The processes that have this text in their environment: all that a marked command started, whatever they do."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if marker.encode() in environment and state != "Z":
            found.append(int(entry.name))
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.02)
