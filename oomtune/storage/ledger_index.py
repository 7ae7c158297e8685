"""Where ledgers are, which one is meant by a word, and which may go.

They lie in `.oomtune/` beside the spec where that folder exists, in the user's state folder otherwise. What scans of
data and explanations have left lies in folders beside them.
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
from oomtune.storage.ledger_format import Kept, Prober, read_kept

_LEFT_BESIDE = ("scans/*.json", "scans/*.npz", "explanations/*.json")
_ASK_FOR_A_LIST = "see which there are: oomtune report --list"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFile:
    """One ledger on disk, as it was when looked at."""

    path: Path
    kept: Kept
    modified: float
    size_bytes: int
    running: bool
    """Does a probe write to it now?"""

    @property
    def name(self) -> str:
        # Before a ledger told what it is of, its file's name was all that did: the spec's name and a digest.
        return self.kept.about.spec.name if self.kept.about else self.path.stem.rpartition("-")[0]

    def is_of(self, subject: Path) -> bool:
        """Is it of this spec, or of one below this folder? What lies in a folder's own `.oomtune/` is the folder's,
        wherever its spec was then."""
        if self.path.parent.resolve() == subject / ".oomtune":
            return True
        about = self.kept.about
        if about is None or not about.spec_path:
            return False
        return Path(about.spec_path).is_relative_to(subject) or about.output == str(subject)


def folders(near: Path) -> list[Path]:
    """Where ledgers may lie: beside a spec in `near`, and in the state folder."""
    found = [ledger_folder(near / "spec.yaml")]
    with contextlib.suppress(EnvironmentProblem):  # there need be none where one lies beside the spec
        found.append(state_folder())
    return list(dict.fromkeys(found))


def subject_of(word: str, here: Path) -> Path:
    """The folder, or the file of a spec, that someone names."""
    path = (here / word).resolve()
    if not is_there(path):
        raise UsageProblem(f"no such file or folder: {word}", hint="give a folder with specs in it, or a spec")
    return path.parent if path.name == ".oomtune" else path


def folders_of(subject: Path) -> list[Path]:
    """Where its ledgers may lie."""
    return folders(subject if subject.is_dir() else subject.parent)


def ledgers(where: Iterable[Path], subject: Path | None = None) -> list[LedgerFile]:
    """Every ledger in these folders, or those of one subject, the newest first. The state folder is one for all."""
    found = [look(path) for folder in where for path in folder.glob("*.jsonl")]
    wanted = (one for one in found if one is not None and (subject is None or one.is_of(subject)))
    return sorted(wanted, key=lambda one: one.modified, reverse=True)


def look(path: Path) -> LedgerFile | None:
    """The ledger in this file; None when it holds none. No lock is taken: a probe that begins just now would find its
    ledger taken."""
    try:
        with path.open("rb") as file:
            kept, state = read_kept(file.read()), os.fstat(file.fileno())
    except OSError:
        return None
    if kept is None:
        return None
    running = kept.ended is None and kept.prober is not None and _is_at_work(kept.prober, path)
    return LedgerFile(path=path, kept=kept, modified=state.st_mtime, size_bytes=state.st_size, running=running)


def _is_at_work(prober: Prober, path: Path) -> bool:
    """Does the process that began this ledger's probe still have it open? Of other machines nothing is known."""
    import psutil

    if prober.host != platform.node():
        return False
    try:
        return any(Path(file.path) == path.resolve() for file in psutil.Process(prober.pid).open_files())
    except psutil.AccessDenied:
        return True  # of another user; that it lives is all that can be seen
    except psutil.Error:
        return False


def find_ledger(word: str, here: Path) -> LedgerFile:
    """The ledger that is meant: its own path, a spec or a tuned config that it is of, or a spec's name."""
    path = Path(word)
    if path.suffix == ".jsonl":
        found = look(path)
        if found is None:
            raise UsageProblem(f"{word} is {'no ledger' if is_there(path) else 'not there'}", hint=_ASK_FOR_A_LIST)
        return found
    target = str((here / path).resolve())
    known = ledgers(dict.fromkeys((*folders((here / path).parent), *folders(here))))
    for one in known:
        about = one.kept.about
        if one.name == word or (about is not None and target in (about.spec_path, about.output)):
            return one
    raise UsageProblem(f"no probe of {word} was found", hint=_ASK_FOR_A_LIST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    removed: tuple[Path, ...]
    freed_bytes: int


def clean(where: Iterable[Path], older_than: float, subject: Path | None = None) -> Cleaned:
    """Remove the ledgers that nobody wrote to since, all or those of one subject, and what was left beside them. A
    running probe keeps its own."""
    removed: list[Path] = []
    freed = 0
    for folder in where:
        needed: set[Path] = set()
        left: set[Path] = set()
        for one in ledgers([folder]):
            if one.running or one.modified >= older_than or not (subject is None or one.is_of(subject)):
                needed |= _needed_by(one)
            else:
                left |= _needed_by(one)
                freed += _remove(one.path, older_than, removed, locked=True)
        for path in (path for pattern in _LEFT_BESIDE for path in folder.glob(pattern)):
            # A scan is read again by probes that are not long ago, and not written anew. Where one subject is cleaned
            # up after, what none of its ledgers knew of is another's.
            if path.with_suffix("") not in needed and (subject is None or path.with_suffix("") in left):
                freed += _remove(path, older_than, removed)
    return Cleaned(removed=tuple(removed), freed_bytes=freed)


def _needed_by(one: LedgerFile) -> set[Path]:
    """What lies beside a ledger and is of use as long as it is kept, without suffixes."""
    about, folder = one.kept.about, one.path.parent
    if about is None:
        return set()
    paths = set(explanation_paths(folder, about))
    if about.spec.scan is not None and about.spec.scan.rows_path:
        paths.add(folder / "scans" / Path(about.spec.scan.rows_path).name)
    return {path.with_suffix("") for path in paths}


def _remove(path: Path, older_than: float, removed: list[Path], *, locked: bool = False) -> int:
    """Remove a file if it is still as old as it was, and nobody has its lock; the bytes that this freed."""
    try:
        with path.open("r+b" if locked else "rb") as file:
            state = os.fstat(file.fileno())
            if state.st_mtime >= older_than or (locked and not take_lock(file.fileno())):
                return 0
            path.unlink()
    except FileNotFoundError:
        return 0  # another clean-up was quicker
    except OSError as error:
        raise OutputNotWritable(f"{path} can't be removed: {error.strerror}") from None
    removed.append(path)
    return state.st_size
