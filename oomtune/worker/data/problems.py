"""The errors that several kinds of data share, in the same words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from oomtune.errors import DataUnreadable
from oomtune.spec.files import matching_paths
from oomtune.worker.process.error_reasons import reason

_MOST_SHOWN = 20
_GRAPH_NODES = re.compile(r"\{\{.*?\}\}|\[\[.*|\[Op:.*", re.DOTALL)
_PIPELINE = re.compile(r"^Error in user-defined function passed to \S+ transformation with iterator: \S+: ")


def files_of(paths: Iterable[str], folder: str, key: str, *, folders: bool = False) -> list[Path]:
    """What the spec's paths and patterns stand for. They were there when the spec was read."""
    found = matching_paths(paths, folder, folders=folders)
    if not found:
        raise DataUnreadable(
            f"{key}: no such {'folder' if folders else 'file'}: {', '.join(str(Path(folder, path)) for path in paths)}",
            hint="it was there when the spec was read; put it back, or change the path",
        )
    return found


def not_there(where: object, what: str, name: str, key: str, known: Collection[str]) -> DataUnreadable:
    """A column, field, feature or array that the spec names and the file does not have."""
    near = difflib.get_close_matches(name, known, n=1)
    shown = ", ".join(sorted(known)[:_MOST_SHOWN]) + (", ..." if len(known) > _MOST_SHOWN else "")
    meant = f"did you mean {near[0]!r}? " if near else ""
    return DataUnreadable(f"{where} has no {what} {name!r} ({key})", hint=f"{meant}it has: {shown or 'none'}")


def reason_of(error: Exception) -> str:
    """What TensorFlow says, without the names of its graph's nodes and of its pipeline's parts."""
    return _PIPELINE.sub("", " ".join(_GRAPH_NODES.sub("", reason(error)).split()))


def unreadable(where: object, reason: object, key: str, hint: str) -> DataUnreadable:
    return DataUnreadable(f"{where} can't be read: {reason} ({key})", hint=hint)
