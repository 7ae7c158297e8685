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
    """Return True if the path exists, False if it doesn't or can't be checked."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def modules_in(folder: Path) -> list[Path]:
    """Return the Python files that code in a folder usually imports: its own, its subfolders' and its packages'."""
    packages = [marker.parent for marker in folder.glob("*/__init__.py")]
    inside = (module for package in packages for module in package.rglob("*.py"))
    return [*folder.glob("*.py"), *folder.glob("*/*.py"), *inside]


def matching_paths(patterns: Iterable[str], folder: Path | str, *, folders: bool = False) -> list[Path]:
    """Return the files (or folders) that match paths and patterns relative to the spec's folder, each once.

    The checks of a spec and the worker share this function, so they agree on what a pattern matches.
    """
    exists = is_folder if folders else is_file
    matches: dict[Path, None] = {}
    for pattern in patterns:
        # data[1].csv is also a pattern. A file with exactly this name comes first.
        names = [pattern] if exists(Path(folder, pattern)) else []
        names = names or sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207 - may be absolute
        matches |= dict.fromkeys(path for name in names if exists(path := Path(folder, name)))
    return list(matches)
