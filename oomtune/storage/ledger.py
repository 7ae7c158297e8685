"""Every trial of a probe, on disk before the next begins. Resuming is replaying it.

A ledger is a text file: one JSON document a line, a header, what is probed, and then a record for each trial; `kept`
reads it. Its name holds a digest of all that could change what a trial would show (spec, versions, device), so a change
of any of them starts another ledger. A lock keeps two probes of one spec apart: the second takes a ledger of its own
beside the first.
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
    read_kept,
    that_hold,
)
from oomtune.storage.ledger_records import record_document
from oomtune.units import format_bytes

_MOST_AT_ONCE = 64
# Who cleans up holds a ledger's lock for a moment; a probe that runs holds it for long.
_PATIENCE = 5
_PAUSE_S = 0.02
# How far an automatic limit may move: of a CPU's memory it is four fifths, so a fifth more than it is still free.
SPARE = 0.2


def ledger_folder(spec_path: Path) -> Path:
    """`.oomtune/` beside the spec when that folder exists, the user's state folder otherwise."""
    beside = spec_path.resolve().parent / ".oomtune"
    return beside if beside.is_dir() else state_folder()


def state_folder() -> Path:
    try:
        return Path(platformdirs.user_state_dir("oomtune")).expanduser() / "ledgers"
    except RuntimeError:  # a container's user may be a mere number
        raise EnvironmentProblem(
            "there is no home folder to keep the trials in",
            hint="set HOME or XDG_STATE_HOME, or make a folder .oomtune beside the spec",
        ) from None


class Ledger:
    """An open ledger, locked for this process. `records` are those of earlier runs, then our own."""

    def __init__(self, path: Path, descriptor: int, key: Mapping[str, Any], limit_bytes: int) -> None:
        self.path = path
        self.notices: list[str] = []
        self.records: list[TrialRecord] = []
        self.environment: dict[str, str] = {}
        """What had to be set for trials to run on this machine."""
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
        spare: float = SPARE,
        fresh: bool = False,
    ) -> Ledger:
        """Take the first ledger of this key that no other probe has, with what it holds. `spare` is the share of the
        limit by which a recorded one may be larger, and still be kept."""
        digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:12]
        named = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:60].lstrip("-.") or "spec"  # what begins with a dash is a flag
        stem = f"{named}-{digest}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path, descriptor = _lock_first_free(folder, stem)
            ledger = cls(path, descriptor, key, limit_bytes)
            if path.name != f"{stem}.jsonl":
                ledger.notices.append("another probe of this spec is running; this one keeps a ledger of its own")
            ledger._begin(fresh=fresh, spare=spare)
        except OSError as error:
            raise OutputNotWritable(
                f"the ledger can't be written in {folder}: {error.strerror}",
                hint="make a folder .oomtune beside the spec",
            ) from None
        return ledger

    def _begin(self, *, fresh: bool, spare: float) -> None:
        text = b"" if fresh else self.path.read_bytes()
        kept = read_kept(text)
        if kept is not None and not _same_limit(kept.limit_bytes, self.limit_bytes, spare):
            self.notices.append(
                f"what is free has changed from {format_bytes(kept.limit_bytes)} to "
                f"{format_bytes(self.limit_bytes)}; earlier trials no longer apply"
            )
            kept = None
        if kept is None:
            os.ftruncate(self._descriptor, 0)
            self._write(self._header)
            return
        self.environment, self._about = kept.environment, kept.about
        # The limit that the records were made under; `auto` would come out a little different each time.
        self.limit_bytes = kept.limit_bytes
        self.records = that_hold(kept.records)
        if kept.good_bytes < len(text):
            self.notices.append(f"the end of the ledger {self.path} was cut short and is dropped")
            os.ftruncate(self._descriptor, kept.good_bytes)

    def begin(self, about: About, at: str) -> None:
        """Note that a probe begins here, and what it is of, so that it can be shown later."""
        self._keep({"began": at, "pid": os.getpid(), "host": platform.node()})
        if about != self._about:
            self._about = about
            self._keep({"about": about_document(about)})

    def end(self, ended: Ended) -> None:
        self._keep({"ended": ended_document(ended)})

    def append(self, record: TrialRecord) -> None:
        """Put a record on disk; it is there when this returns."""
        self.records.append(record)
        self._keep(record_document(record))

    def keep_environment(self, environment: Mapping[str, str]) -> None:
        """Remember what trials on this machine need, so that a resumed probe need not find out again."""
        if dict(environment) != self.environment:
            self.environment = dict(environment)
            self._keep({"environment": self.environment})

    def _keep(self, document: Mapping[str, Any]) -> None:
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
            os.ftruncate(self._descriptor, end)  # half a line would look like a torn one
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
    for number in range(1, _MOST_AT_ONCE + 1):
        path = folder / (f"{stem}.jsonl" if number == 1 else f"{stem}.{number}.jsonl")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock_soon(descriptor):
            os.close(descriptor)
            continue
        if not _is_still(path, descriptor):
            os.close(descriptor)  # it was cleaned away between the two
            return _lock_first_free(folder, stem)
        return path, descriptor
    raise OutputNotWritable(f"{_MOST_AT_ONCE} probes of this spec are running already", hint="wait for one to end")


def _lock_soon(descriptor: int) -> bool:
    for _ in range(_PATIENCE):
        if take_lock(descriptor):
            return True
        time.sleep(_PAUSE_S)
    return False


def take_lock(descriptor: int) -> bool:
    """Try to take a ledger's lock, for as long as the file is open; a probe that runs has it. The file has to be open
    for writing: over NFS others can't be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Is the open file still the one of this name?"""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _same_limit(recorded: int, now: int, spare: float) -> bool:
    """Is it the same limit, or an automatic one that moved as free memory does?"""
    return (1 - SPARE) * now <= recorded <= (1 + spare) * now
