"""Find the files that a spec names."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path


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
    """Return True if a file or folder has this name, False if there is none or it can't be checked."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def modules_in(folder: Path) -> list[Path]:
    """Return the Python files of a folder, of its subfolders and of its packages: what code there usually imports."""
    packages = [marker.parent for marker in folder.glob("*/__init__.py")]
    inside = (module for package in packages for module in package.rglob("*.py"))
    return [*folder.glob("*.py"), *folder.glob("*/*.py"), *inside]


def matching_paths(patterns: Iterable[str], folder: Path | str, *, folders: bool = False) -> list[Path]:
    """Return the files (or folders) that paths and patterns name, each once, relative to the spec's folder.

    The spec's checks and the worker both call this, so a pattern means the same to both.
    """
    exists = is_folder if folders else is_file
    matches: dict[Path, None] = {}
    for pattern in patterns:
        # data[1].csv is also a pattern; it names itself if there is such a file.
        names = [pattern] if exists(Path(folder, pattern)) else []
        names = names or sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207 - may be absolute
        matches |= dict.fromkeys(path for name in names if exists(path := Path(folder, name)))
    return list(matches)
