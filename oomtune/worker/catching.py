"""Catching the line at which something grows, in the act: one step is run with Python's tracing on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from oomtune.worker import users
from oomtune.worker.holders import Growth


class Catching:
    """Between `start` and `stop`, finds the user's line after which each of the things is larger than before."""

    def __init__(self, things: Sequence[Growth]) -> None:
        self.things = things
        self.sizes = [thing.measure() for thing in things]
        self.lines: dict[int, str] = {}
        """By the thing's index; what has not grown, or not in code of the user's, has none."""

    def start(self) -> None:
        for frame in users.frames():  # these run already: a loop of the user's that called us
            frame.f_trace = self._follow(frame)
        sys.settrace(self._entered)

    def stop(self) -> None:
        sys.settrace(None)
        for frame in users.frames():
            frame.f_trace = None

    def growth(self, index: int) -> int:
        """By how much it has grown since the start, in its own measure."""
        return self.things[index].measure() - self.sizes[index]

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._follow(frame) if users.is_users(frame.f_code.co_filename) else None

    def _follow(self, frame: FrameType) -> Any:
        line = users.line_of(frame)

        def next_event(frame: FrameType, _event: str, _argument: Any) -> Any:
            # An event comes before its line is run: what is larger by now grew in the line before it.
            nonlocal line
            self._look(line)
            line = users.line_of(frame)
            return next_event

        return next_event

    def _look(self, line: str) -> None:
        for index in range(len(self.things)):
            if index not in self.lines and self.growth(index) > 0:
                self.lines[index] = line
