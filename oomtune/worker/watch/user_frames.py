"""Which code is the user's own: neither ours, nor a library's, nor Python's."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import oomtune


def is_ours(filename: str) -> bool:
    return Path(oomtune.__file__).parent in Path(filename).parents


@cache
def is_users(filename: str) -> bool:
    path = Path(filename)
    if filename.startswith("<") or is_ours(filename):
        return False
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return Path(os.__file__).parent not in path.parents


def frames() -> Iterator[FrameType]:
    """The user's frames in this thread, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def line_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def as_written(line: str) -> str:
    """The line that the user wrote, where this one is of the file that AutoGraph made of it; empty if there is none."""
    path, _, number = line.rpartition(":")
    if "__autograph_generated_file" not in path:
        return line
    # It keeps what it made, each with a table of which line was made of which.
    for made in (thing for thing in gc.get_objects() if type(thing).__name__ == "_PythonFnFactory"):
        if origin := (getattr(made, "source_map", None) or {}).get((path, int(number))):
            return f"{origin.loc.filename}:{origin.loc.lineno}"
    return ""


def definition(code: CodeType) -> str:
    """Where the user wrote this function; empty when it is not theirs."""
    return f"{code.co_filename}:{code.co_firstlineno}" if is_users(code.co_filename) else ""


def raised_at(error: BaseException) -> str:
    """The last line of the user's code that the exception came through; empty when it came through none."""
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    return f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""


def is_users_class(kind: type) -> bool:
    """Was this class written by the user?"""
    module = sys.modules.get(kind.__module__)
    return is_users(getattr(module, "__file__", None) or "<none>")
