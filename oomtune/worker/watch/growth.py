"""Finds what makes memory climb from step to step: the holder of the new tensors, and the line that adds them.

The search has three stages, and each runs only if the stage before it succeeds: check that memory climbs over the last
steps; find the holders that gain tensors; run a step with Python's tracing on to find the line that adds them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from oomtune.domain import Finding
from oomtune.keras.private_tensorflow import script_ops
from oomtune.units import format_bytes
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch import holders, user_frames
from oomtune.worker.watch.holders import Growth, Snapshot

_REGISTRY: Any = getattr(script_ops, "FuncRegistry", None)
_CLIMBING_STEPS = 3
# A holder that grows only in some steps needs this many times as many steps to show.
_SLOW_PERIOD = 2
_STEPS_BETWEEN = 2
# Climbing memory may fall a little in between: in total by this share of its rises.
_MAX_FALL_SHARE = 0.25
_MAX_SEARCHES = 3
_MAX_SUSPECTS = 6


class GrowthWatch:
    """Searches for growth while memory climbs, and adds a finding to `progress` for each growing holder."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.searches_left = _MAX_SEARCHES
        self.before: Snapshot | None = None
        self.steps_before = 0
        self.period = 1
        self.suspects: list[Growth] = []
        self.tracer: LineTracer | None = None
        self.traced_steps = 0

    def begin_step(self) -> None:
        if self.suspects and self.tracer is None:
            self.tracer = LineTracer(self.suspects)
            self.traced_steps = 0
        if self.tracer is not None:
            self.tracer.start()

    def end_step(self) -> None:
        memory = self.progress.memory_after_step_bytes
        if self.tracer is not None:
            self.tracer.stop()
            self.traced_steps += 1
            if self.traced_steps == self.period:
                self._report(self.tracer)
                self.suspects, self.tracer, self.searches_left = [], None, 0
        elif self.before is not None:
            steps = _STEPS_BETWEEN * self.period
            if len(memory) - self.steps_before >= steps:
                self.suspects = holders.find_growth(self.before, steps, min_count=_STEPS_BETWEEN)[:_MAX_SUSPECTS]
                self.before = None
        elif self.searches_left and (period := _climbing_period(memory)):
            # After an empty search, watch longer: the large holder may grow less often than small ones beside it.
            self.period = period if self.searches_left == _MAX_SEARCHES else _SLOW_PERIOD
            self.searches_left -= 1
            self.steps_before = len(memory)
            self.before = holders.take_snapshot()

    def _report(self, tracer: LineTracer) -> None:
        """Report each line once. The user's name comes first: Keras may keep the same tensors under a private one."""
        growths = [
            (-growth.bytes_per_step, "._" in (name := growth.find_name()), name, index)
            for index, growth in enumerate(tracer.suspects)
            if _still_grows(growth, tracer.growth(index), self.period)
        ]
        for _, _, name, index in sorted(growths):
            line = user_frames.before_autograph(tracer.lines.get(index, ""))
            finding = _finding(tracer.suspects[index], name, line)
            if not any(_is_same(finding, other) for other in self.progress.findings.values()):
                self.progress.add_finding(finding)


def _climbing_period(memory: list[int]) -> int:
    """Return 1 if memory rose in each of the last steps, 2 if only in some of them, and 0 if it does not climb."""
    changes = [after - before for before, after in itertools.pairwise(memory[-_SLOW_PERIOD * _CLIMBING_STEPS - 1 :])]
    last = changes[-_CLIMBING_STEPS:]
    if len(last) == _CLIMBING_STEPS and min(last) > 0:
        return 1
    rises, fall = [change for change in changes if change > 0], -sum(change for change in changes if change < 0)
    is_slow_climb = len(changes) == _SLOW_PERIOD * _CLIMBING_STEPS and fall <= _MAX_FALL_SHARE * sum(rises)
    return _SLOW_PERIOD if is_slow_climb and len(rises) >= _CLIMBING_STEPS else 0


def _still_grows(growth: Growth, added: int, steps: int) -> bool:
    """Return whether the suspect also grew in the traced steps. One tensor may just vary with its batch's length."""
    if growth.holds == "one tensor":
        return growth.bytes_per_step / 2 <= added / steps <= growth.bytes_per_step * 2
    return added > 0


def _is_same(one: Finding, other: Finding) -> bool:
    """Return whether both findings report the same growth. Without a line, an equal rate decides."""
    is_same_rate = one.bytes_per_step == other.bytes_per_step
    return (one.kind, one.where) == (other.kind, other.where) and (bool(one.where) or is_same_rate)


def _finding(growth: Growth, name: str, line: str) -> Finding:
    rate = f"{format_bytes(growth.bytes_per_step)} per step"
    noun = growth.holds.removesuffix("s") if growth.count == 1 else growth.holds
    message = f"{name} holds {growth.count:g} more {noun} after each step, {rate}"
    match growth.holds:
        case "one tensor":
            message = f"the tensor {name} grows by {rate}"
            hint = "keep a fixed number of its rows, or write them into a tf.Variable of a fixed size"
        case "variables":
            hint = "create variables once, in __init__ or build(), and assign() to them in a step"
        case "tensors":
            hint = "keep numbers instead, such as float(loss) or tensor.numpy(), or clear it at the end of each epoch"
    return Finding(
        kind="kept_tensors" if growth.holds == "tensors" else "leak",
        message=message,
        where=line,
        hint=hint,
        bytes_per_step=growth.bytes_per_step,
    )


class LineTracer:
    """Traces Python between `start` and `stop`, and notes the user's line after which each suspect is larger.

    Python traces one thread at a time. `tf.py_function` and `tf.numpy_function` call back from a graph in a thread of
    TensorFlow's, so tracing is also turned on where TensorFlow enters that call. That entry point is not public
    API: if a version of TensorFlow lacks it, findings about such code have no line.
    """

    def __init__(self, suspects: Sequence[Growth]) -> None:
        self.suspects = suspects
        self.sizes = [suspect.measure() for suspect in suspects]
        self.lines: dict[int, str] = {}
        """Lines by the suspect's index. A suspect that did not grow in the user's own code has none."""
        self.original_call: Callable[..., Any] | None = None

    def start(self) -> None:
        for frame in user_frames.current_frames():  # a loop of the user's that called us is already running
            frame.f_trace = self._follow(frame)
        self._trace_callbacks()
        sys.settrace(self._enter)

    def stop(self) -> None:
        sys.settrace(None)
        if self.original_call is not None:
            _REGISTRY.__call__, self.original_call = self.original_call, None
        for frame in user_frames.current_frames():
            frame.f_trace = None

    def growth(self, index: int) -> int:
        """Return the suspect's growth since the start, in items or bytes."""
        return self.suspects[index].measure() - self.sizes[index]

    def _trace_callbacks(self) -> None:
        if _REGISTRY is None:
            return
        call = self.original_call = _REGISTRY.__call__

        def traced(*args: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(self._enter)
            try:
                return call(*args)
            finally:
                sys.settrace(before)

        _REGISTRY.__call__ = traced

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._follow(frame) if user_frames.is_user_file(frame.f_code.co_filename) else None

    def _follow(self, frame: FrameType) -> Any:
        line = user_frames.line_of(frame)

        def on_event(frame: FrameType, _event: str, _argument: Any) -> Any:
            # An event comes before its line runs, so any growth so far belongs to the line before.
            nonlocal line
            self._measure(line)
            line = user_frames.line_of(frame)
            return on_event

        return on_event

    def _measure(self, line: str) -> None:
        for index in range(len(self.suspects)):
            if index not in self.lines and self.growth(index) > 0:
                self.lines[index] = line
