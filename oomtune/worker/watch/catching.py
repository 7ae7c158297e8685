"""Catching the line at which something grows, in the act: one step is run with Python's tracing on.

Python traces one thread at a time. What a graph calls back by `tf.py_function` or `tf.numpy_function` runs in a thread
of TensorFlow's own, so tracing is turned on there too, where TensorFlow comes in. That place is no public name: where a
version of TensorFlow has none, such code has no line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from oomtune.keras.private_tensorflow import script_ops
from oomtune.worker.watch import user_frames as users
from oomtune.worker.watch.holders import Growth

_REGISTRY: Any = getattr(script_ops, "FuncRegistry", None)


class Catching:
    """Between `start` and `stop`, finds the user's line after which each of the things is larger than before."""

    def __init__(self, things: Sequence[Growth]) -> None:
        self.things = things
        self.sizes = [thing.measure() for thing in things]
        self.lines: dict[int, str] = {}
        """By the thing's index; what has not grown, or not in code of the user's, has none."""
        self.called_back: Callable[..., Any] | None = None
        """What TensorFlow calls by itself."""

    def start(self) -> None:
        for frame in users.frames():  # these run already: a loop of the user's that called us
            frame.f_trace = self._follow(frame)
        self._trace_what_is_called_back()
        sys.settrace(self._entered)

    def stop(self) -> None:
        sys.settrace(None)
        if self.called_back is not None:
            _REGISTRY.__call__, self.called_back = self.called_back, None
        for frame in users.frames():
            frame.f_trace = None

    def _trace_what_is_called_back(self) -> None:
        if _REGISTRY is None:
            return
        called = self.called_back = _REGISTRY.__call__

        def traced(*given: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(self._entered)
            try:
                return called(*given)
            finally:
                sys.settrace(before)

        _REGISTRY.__call__ = traced

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
