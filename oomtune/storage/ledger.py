"""The ledger: every trial of a probe, on disk before the next trial begins. Resuming a probe replays its ledger.

The file name holds a digest of everything that could change what a trial shows (spec, versions, device), so any change
starts another ledger. A lock separates two probes of one spec: the second one gets a ledger of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import platformdirs

from oomtune.domain import TrialRecord
from oomtune.errors import EnvironmentProblem, OutputNotWritable
from oomtune.storage.ledger_format import (
    FORMAT,
    About,
    Ended,
    about_document,
    ended_document,
    parse_ledger,
    resumable_records,
)
from oomtune.storage.ledger_records import record_document
from oomtune.units import format_bytes

_MAX_LEDGERS = 64
# Cleaning up holds a ledger's lock for a moment; a running probe holds it for long.
_LOCK_ATTEMPTS = 5
_PAUSE_S = 0.02
# By how much an automatic limit may differ and still count as the same: a CPU's limit is 80 % of what is free.
LIMIT_DRIFT = 0.2


def ledger_folder(spec_path: Path) -> Path:
    """Return `.oomtune/` beside the spec if that folder exists, otherwise the user's state folder."""
    beside = spec_path.resolve().parent / ".oomtune"
    return beside if beside.is_dir() else state_folder()


def state_folder() -> Path:
    try:
        return Path(platformdirs.user_state_dir("oomtune")).expanduser() / "ledgers"
    except RuntimeError:  # the user of a container may be a mere number
        raise EnvironmentProblem(
            "there is no home folder to save the trials in",
            hint="set HOME or XDG_STATE_HOME, or make a folder .oomtune beside the spec",
        ) from None


class Ledger:
    """An open ledger, locked for this process. `records` holds those of earlier runs, then those of this one."""

    def __init__(self, path: Path, descriptor: int, key: Mapping[str, Any], limit_bytes: int) -> None:
        self.path = path
        self.notices: list[str] = []
        self.records: list[TrialRecord] = []
        self.environment: dict[str, str] = {}
        """Variables that trials need on this machine."""
        self.limit_bytes = limit_bytes
        self._descriptor = descriptor
        self._about: About | None = None
        self._header = {"format": FORMAT, "limit_bytes": limit_bytes, "key": dict(key)}

    @classmethod
    def open(
        cls,
        folder: Path,
        name: str,
        key: Mapping[str, Any],
        *,
        limit_bytes: int,
        max_drift: float = LIMIT_DRIFT,
        fresh: bool = False,
    ) -> Ledger:
        """Open the first ledger of this key that no other probe has locked, with its records.

        `max_drift` is the share by which the recorded limit may be larger than the present one."""
        digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:12]
        # A name that begins with a dash would be taken for a flag.
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:60].lstrip("-.") or "spec"
        stem = f"{readable}-{digest}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path, descriptor = _lock_first_free(folder, stem)
            ledger = cls(path, descriptor, key, limit_bytes)
            if path.name != f"{stem}.jsonl":
                ledger.notices.append("another probe of this spec is running; this one uses a ledger of its own")
            ledger._load(fresh=fresh, max_drift=max_drift)
        except OSError as error:
            raise OutputNotWritable(
                f"the ledger can't be written in {folder}: {error.strerror}",
                hint="make a folder .oomtune beside the spec",
            ) from None
        return ledger

    def _load(self, *, fresh: bool, max_drift: float) -> None:
        text = b"" if fresh else self.path.read_bytes()
        contents = parse_ledger(text)
        if contents is not None and not _is_same_limit(contents.limit_bytes, self.limit_bytes, max_drift):
            self.notices.append(
                f"free memory has changed from {format_bytes(contents.limit_bytes)} to "
                f"{format_bytes(self.limit_bytes)}; earlier trials no longer apply"
            )
            contents = None
        if contents is None:
            os.ftruncate(self._descriptor, 0)
            self._write(self._header)
            return
        self.environment, self._about = contents.environment, contents.about
        # The limit that the records were made with; `auto` would come out a little different each time.
        self.limit_bytes = contents.limit_bytes
        self.records = resumable_records(contents.records)
        if contents.complete_bytes < len(text):
            self.notices.append(f"the end of the ledger {self.path} was cut off and is ignored")
            os.ftruncate(self._descriptor, contents.complete_bytes)

    def begin(self, about: About, at: str) -> None:
        """Record that a probe begins, and what it probes, so that it can be shown later."""
        self._append_line({"began": at, "pid": os.getpid(), "host": platform.node()})
        if about != self._about:
            self._about = about
            self._append_line({"about": about_document(about)})

    def end(self, ended: Ended) -> None:
        self._append_line({"ended": ended_document(ended)})

    def append(self, record: TrialRecord) -> None:
        """Add a record; it is on disk when this returns."""
        self.records.append(record)
        self._append_line(record_document(record))

    def save_environment(self, environment: Mapping[str, str]) -> None:
        """Save the variables that trials need on this machine, so that a resumed probe does not have to find out."""
        if dict(environment) != self.environment:
            self.environment = dict(environment)
            self._append_line({"environment": self.environment})

    def _append_line(self, document: Mapping[str, Any]) -> None:
        try:
            self._write(document)
        except OSError as error:
            raise OutputNotWritable(
                f"the ledger {self.path} can't be written: {error.strerror}", hint="free disk space and run it again"
            ) from None

    def _write(self, document: Mapping[str, Any]) -> None:
        line = json.dumps(document).encode() + b"\n"
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, end)  # half a line would look like a crash while writing
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _lock_first_free(folder: Path, stem: str) -> tuple[Path, int]:
    for number in range(1, _MAX_LEDGERS + 1):
        path = folder / (f"{stem}.jsonl" if number == 1 else f"{stem}.{number}.jsonl")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock_soon(descriptor):
            os.close(descriptor)
            continue
        if not _is_same_file(path, descriptor):
            os.close(descriptor)  # a clean-up removed the file in between
            return _lock_first_free(folder, stem)
        return path, descriptor
    raise OutputNotWritable(f"{_MAX_LEDGERS} probes of this spec are already running", hint="wait for one to end")


def _lock_soon(descriptor: int) -> bool:
    for _ in range(_LOCK_ATTEMPTS):
        if take_lock(descriptor):
            return True
        time.sleep(_PAUSE_S)
    return False


def take_lock(descriptor: int) -> bool:
    """Try to lock a ledger for as long as its file is open. Return False if a running probe has locked it.

    The file must be open for writing: others can't be locked over NFS."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_same_limit(recorded: int, now: int, max_drift: float) -> bool:
    """Return True for the same limit, or for an automatic one that moved with free memory."""
    return (1 - LIMIT_DRIFT) * now <= recorded <= (1 + max_drift) * now
