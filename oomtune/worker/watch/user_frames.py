"""Distinguishes the user's code from oomtune, libraries and Python itself, and finds its lines."""

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


def is_own_file(filename: str) -> bool:
    """Return whether this file is part of oomtune."""
    return Path(oomtune.__file__).parent in Path(filename).parents


@cache
def is_user_file(filename: str) -> bool:
    path = Path(filename)
    if filename.startswith("<") or is_own_file(filename):
        return False
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return Path(os.__file__).parent not in path.parents


def is_user_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return is_user_file(getattr(module, "__file__", None) or "<none>")


def current_frames() -> Iterator[FrameType]:
    """Yield the user's frames in this thread, innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def line_of(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def definition(code: CodeType) -> str:
    """Return the line on which the user defined this function, or "" if the function is not the user's."""
    return f"{code.co_filename}:{code.co_firstlineno}" if is_user_file(code.co_filename) else ""


def raised_at(error: BaseException) -> str:
    """Return the last line of the user's code that the exception passed through, or "" if it passed through none."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]
    return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else ""


def before_autograph(line: str) -> str:
    """Map a line in a file that AutoGraph generated to the line that the user wrote; "" if unknown."""
    path, _, number = line.rpartition(":")
    if "__autograph_generated_file" not in path:
        return line
    # AutoGraph keeps its generated functions, each with a source map back to the user's lines.
    for generated in (thing for thing in gc.get_objects() if type(thing).__name__ == "_PythonFnFactory"):
        if origin := (getattr(generated, "source_map", None) or {}).get((path, int(number))):
            return f"{origin.loc.filename}:{origin.loc.lineno}"
    return ""
