"""Finds functions that TensorFlow traces again and again, and reports the count, the line and the reason.

TensorFlow counts the calls that trace, for a warning that most people never see. `RetraceWatch` replaces that
counter with a listener that passes every call on and costs nothing unless a function is traced. The counter is not
public API: if a version of TensorFlow lacks it, the watch reports nothing.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.domain import Finding
from oomtune.keras.private_tensorflow import polymorphic_function
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch import user_frames

_COUNTER = "_frequent_tracing_detector_manager"
_MIN_STEPS = 3
_MIN_SHARE = 0.5  # of the steps; with buckets of several shapes, each shape is traced once, in few of the steps


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a call traced again."""

    reason: str
    hint: str


_UNKNOWN = _Cause(
    "",
    "make the tf.function once, pass numbers as tensors, and give it an input_signature or reduce_retracing=True",
)
_NEW_FUNCTION = _Cause("a new tf.function each time", "make the tf.function once, outside the step")


@dataclass(slots=True)
class _TracedFunction:
    """A function's calls that led to tracing."""

    code: CodeType
    count: int = 0
    steps: set[int] = field(default_factory=set)
    line: str = ""
    cause: _Cause = _UNKNOWN
    function: weakref.ref[Any] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def add_call(self, step: int, frame: FrameType) -> None:
        """Record a call that led to tracing; `frame` is TensorFlow's own frame in that call."""
        self.count += 1
        self.steps.add(step)
        self.line = next((user_frames.line_of(user) for user in user_frames.current_frames()), "")
        function = frame.f_locals.get("self")
        if function is None:
            return  # another version of TensorFlow
        arguments = _describe_arguments(self.code, frame.f_locals.get("args", ()), frame.f_locals.get("kwds", {}))
        if self.function is not None:
            is_same_function = self.function() is function
            self.cause = _difference(self.arguments, arguments) if is_same_function else _NEW_FUNCTION
        self.function, self.arguments = weakref.ref(function), arguments

    def finding(self, steps: int) -> Finding:
        is_users = user_frames.is_user_file(self.code.co_filename)
        name = f"{self.code.co_name}()" if is_users else "the training step"
        because = f": {self.cause.reason}" if self.cause.reason else ""
        definition = user_frames.definition(self.code)
        return Finding(
            kind="retrace",
            message=f"{name} was traced {self.count} times in {steps} steps{because}",
            where=definition or self.line if self.cause is _NEW_FUNCTION else self.line or definition,
            hint=self.cause.hint,
        )


def _describe_arguments(code: CodeType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what tracing depends on, by argument: a Python number's value, a tensor's shape."""
    names = code.co_varnames[: code.co_argcount]
    if names[:1] == ("self",) and len(names) > len(args) + len(kwargs):
        names = names[1:]
    values = {**{names[i] if i < len(names) else f"argument {i + 1}": arg for i, arg in enumerate(args)}, **kwargs}
    return {name: [_describe_leaf(leaf) for leaf in tf.nest.flatten(value)] for name, value in values.items()}


def _describe_leaf(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tf.Tensor | np.ndarray):
        return tuple(value.shape)
    return type(value).__name__


def _difference(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> _Cause:
    """Return the first argument that differs between two calls, with a hint."""
    for name, leaves in after.items():
        for old, new in zip(before.get(name, ()), leaves, strict=False):
            if old == new:
                continue
            if isinstance(new, tuple):
                return _Cause(
                    f"the shape of {name!r} was {list(old)}, then {list(new)}" if isinstance(old, tuple) else "",
                    "make batches of one shape, or: tf.function(reduce_retracing=True)",
                )
            return _Cause(f"{name!r} was {old!r}, then {new!r}", f"pass it as a tensor: tf.constant({name})")
    return _UNKNOWN


class RetraceWatch:
    """Reports each function that TensorFlow traces in at least half of the steps."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.steps = 0
        self.functions: dict[CodeType, _TracedFunction] = {}
        self.is_in_step = False
        counter = getattr(polymorphic_function, _COUNTER, None)
        if counter is not None:
            setattr(polymorphic_function, _COUNTER, _Listener(counter, self))

    def begin_step(self) -> None:
        self.is_in_step = True

    def end_step(self) -> None:
        self.is_in_step = False
        self.steps += 1
        for function in self.functions.values():
            if len(function.steps) >= max(_MIN_STEPS, _MIN_SHARE * self.steps):
                subject = f"{function.code.co_name} {id(function.code)}"
                self.progress.add_finding(function.finding(self.steps), subject=subject)

    def on_trace(self, code: object, frame: FrameType) -> None:
        if self.is_in_step and isinstance(code, CodeType):
            self.functions.setdefault(code, _TracedFunction(code)).add_call(self.steps, frame)


class _Listener:
    """Replaces TensorFlow's counter of calls that led to tracing."""

    def __init__(self, counter: Any, watch: RetraceWatch) -> None:
        self.counter = counter
        self.watch = watch

    def called_without_tracing(self, key: Any) -> None:
        self.counter.called_without_tracing(key)

    def called_with_tracing(self, key: Any, *rest: Any) -> None:
        self.watch.on_trace(key, sys._getframe(1))
        self.counter.called_with_tracing(key, *rest)
