"""The files that a spec names: which they are, and how to tell whether they have changed."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable
from pathlib import Path

# Files larger than this together are told apart by their sizes, their times and some pieces of them.
_WHOLE_BYTES = 256 * 1024**2
_PIECE_BYTES = 1024**2
_PIECES = 64


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """Is there a file or folder of this name, as far as one can look?"""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def modules_in(folder: Path) -> list[Path]:
    """The Python files of a folder, of the folders in it and of its packages: what code there most often imports."""
    packages = [found.parent for found in folder.glob("*/__init__.py")]
    inside = (module for package in packages for module in package.rglob("*.py"))
    return [*folder.glob("*.py"), *folder.glob("*/*.py"), *inside]


def found_at(paths: Iterable[str], folder: Path | str, *, folders: bool = False) -> list[Path]:
    """The files (or folders) that paths and patterns stand for, each once, from the spec's folder.

    The border and the worker both ask here, so that a pattern means the same to both.
    """
    found: dict[Path, None] = {}
    for path in paths:
        names = [path] if _is_such(Path(folder, path), folders) else []
        # A name such as data[1].csv is a pattern too; it stands for itself if there is such a file.
        names = names or sorted(glob.glob(path, root_dir=folder, recursive=True))  # noqa: PTH207 - paths may be absolute
        found |= dict.fromkeys(there for name in names if _is_such(there := Path(folder, name), folders))
    return list(found)


def _is_such(path: Path, folders: bool) -> bool:
    return is_folder(path) if folders else is_file(path)


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """A digest of each file."""
    files = sorted(set(paths))
    if sum(path.stat().st_size for path in files) <= _WHOLE_BYTES:
        return {str(path): _digest(path) for path in files}
    return {str(path): _sampled_digest(path, _PIECES // len(files)) for path in files}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _sampled_digest(path: Path, pieces: int) -> str:
    state = path.stat()
    digest = hashlib.sha256(f"{state.st_size}-{state.st_mtime_ns}".encode())
    with path.open("rb") as file:
        for piece in range(pieces):
            file.seek(state.st_size * piece // pieces)
            digest.update(file.read(_PIECE_BYTES))
    return digest.hexdigest()
