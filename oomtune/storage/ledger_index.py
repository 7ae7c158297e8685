"""Find, list and remove ledgers.

Ledgers are in `.oomtune/` beside the spec if that folder exists, otherwise in the user's state folder. Scans and
explanations are in folders beside them.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from oomtune.errors import EnvironmentProblem, OutputNotWritable, UsageProblem
from oomtune.spec.files import is_there
from oomtune.storage.explanations import explanation_paths
from oomtune.storage.ledger import ledger_folder, state_folder, take_lock
from oomtune.storage.ledger_format import LedgerContents, Prober, parse_ledger

_COMPANIONS = ("scans/*.json", "scans/*.npz", "explanations/*.json")
_LIST_HINT = "list the probes: oomtune report --list"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFile:
    """A ledger on disk, as it was when it was read."""

    path: Path
    contents: LedgerContents
    modified: float
    size_bytes: int
    running: bool
    """Whether a probe is writing to it."""

    @property
    def name(self) -> str:
        # Old ledgers say nothing about their spec except in the file name: the spec's name and a digest.
        about = self.contents.about
        return about.spec.name if about else self.path.stem.rpartition("-")[0]

    def belongs_to(self, subject: Path) -> bool:
        """Return True if the ledger is of this spec or of one below this folder.

        Everything in a folder's own `.oomtune/` belongs to the folder, wherever its spec was at the time."""
        if self.path.parent.resolve() == subject / ".oomtune":
            return True
        about = self.contents.about
        if about is None or not about.spec_path:
            return False
        return Path(about.spec_path).is_relative_to(subject) or about.output == str(subject)


def ledger_folders(near: Path) -> list[Path]:
    """Return the folders that may hold ledgers: beside a spec in `near`, and the state folder."""
    folders = [ledger_folder(near / "spec.yaml")]
    with contextlib.suppress(EnvironmentProblem):  # not needed if there is a folder beside the spec
        folders.append(state_folder())
    return list(dict.fromkeys(folders))


def resolve_subject(word: str, here: Path) -> Path:
    """Return the folder or the spec that the user names."""
    path = (here / word).resolve()
    if not is_there(path):
        raise UsageProblem(f"no such file or folder: {word}", hint="give a folder with specs in it, or a spec")
    return path.parent if path.name == ".oomtune" else path


def ledger_folders_of(subject: Path) -> list[Path]:
    return ledger_folders(subject if subject.is_dir() else subject.parent)


def list_ledgers(folders: Iterable[Path], subject: Path | None = None) -> list[LedgerFile]:
    """Return the ledgers in these folders, newest first; with a subject, only those that belong to it."""
    files = [read_ledger(path) for folder in folders for path in folder.glob("*.jsonl")]
    ledgers = (file for file in files if file is not None and (subject is None or file.belongs_to(subject)))
    return sorted(ledgers, key=lambda ledger: ledger.modified, reverse=True)


def read_ledger(path: Path) -> LedgerFile | None:
    """Return the ledger in a file, or None if it holds none. Takes no lock, which could disturb a starting probe."""
    try:
        with path.open("rb") as file:
            contents, state = parse_ledger(file.read()), os.fstat(file.fileno())
    except OSError:
        return None
    if contents is None:
        return None
    running = contents.ended is None and contents.prober is not None and _is_running(contents.prober, path)
    return LedgerFile(path=path, contents=contents, modified=state.st_mtime, size_bytes=state.st_size, running=running)


def _is_running(prober: Prober, path: Path) -> bool:
    """Return True if the process that began the probe still has its ledger open, as far as this machine can tell."""
    import psutil

    if prober.host != platform.node():
        return False
    try:
        return any(Path(file.path) == path.resolve() for file in psutil.Process(prober.pid).open_files())
    except psutil.AccessDenied:
        return True  # the process of another user is alive; its open files are not visible
    except psutil.Error:
        return False


def find_ledger(word: str, here: Path) -> LedgerFile:
    """Return the ledger that a path, a spec, a tuned config or a spec's name stands for."""
    path = Path(word)
    if path.suffix == ".jsonl":
        ledger = read_ledger(path)
        if ledger is None:
            raise UsageProblem(
                f"{word} is not a ledger" if is_there(path) else f"no such file: {word}", hint=_LIST_HINT
            )
        return ledger
    target = str((here / path).resolve())
    for ledger in list_ledgers(dict.fromkeys((*ledger_folders((here / path).parent), *ledger_folders(here)))):
        about = ledger.contents.about
        if ledger.name == word or (about is not None and target in (about.spec_path, about.output)):
            return ledger
    raise UsageProblem(f"no probe of {word} was found", hint=_LIST_HINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    removed: tuple[Path, ...]
    freed_bytes: int


def clean(folders: Iterable[Path], older_than: float, subject: Path | None = None) -> Cleaned:
    """Remove ledgers not modified since `older_than`, all or those of one subject, and files that only they needed.

    The ledger of a running probe stays."""
    removed: list[Path] = []
    freed_bytes = 0
    for folder in folders:
        still_needed: set[Path] = set()
        released: set[Path] = set()
        for ledger in list_ledgers([folder]):
            is_subject = subject is None or ledger.belongs_to(subject)
            if ledger.running or ledger.modified >= older_than or not is_subject:
                still_needed |= _companions(ledger)
            else:
                released |= _companions(ledger)
                freed_bytes += _remove(ledger.path, older_than, removed, locked=True)
        for path in (path for pattern in _COMPANIONS for path in folder.glob(pattern)):
            # Recent probes read an old scan without writing it again. With a subject, files that none of its ledgers
            # used belong to others.
            stem = path.with_suffix("")
            if stem not in still_needed and (subject is None or stem in released):
                freed_bytes += _remove(path, older_than, removed)
    return Cleaned(removed=tuple(removed), freed_bytes=freed_bytes)


def _companions(ledger: LedgerFile) -> set[Path]:
    """Return the files beside a ledger that are useful as long as it is, without suffixes."""
    about, folder = ledger.contents.about, ledger.path.parent
    if about is None:
        return set()
    paths = set(explanation_paths(folder, about))
    if about.spec.scan is not None and about.spec.scan.rows_path:
        paths.add(folder / "scans" / Path(about.spec.scan.rows_path).name)
    return {path.with_suffix("") for path in paths}


def _remove(path: Path, older_than: float, removed: list[Path], *, locked: bool = False) -> int:
    """Remove a file that is still old enough and that nobody has locked. Return the bytes this freed."""
    try:
        with path.open("r+b" if locked else "rb") as file:
            state = os.fstat(file.fileno())
            if state.st_mtime >= older_than or (locked and not take_lock(file.fileno())):
                return 0
            path.unlink()
    except FileNotFoundError:
        return 0  # another clean-up was faster
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be removed: {error.strerror}") from None
    removed.append(path)
    return state.st_size
