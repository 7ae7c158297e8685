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
