"""Functions that TensorFlow traces again and again: which, how often, from which line, and why.

TensorFlow itself counts the calls that traced, for a warning that most people never see. This stands in for its
counter, passes everything on, and costs nothing unless something is traced. The counter is no public name: where a
version of TensorFlow has none, nothing is found.
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
from oomtune.worker.watch import user_frames as users

_COUNTER = "_frequent_tracing_detector_manager"
_LEAST_STEPS = 3
_LEAST_SHARE = 0.5  # of the steps: buckets of several shapes are each traced once, in few of them
_PLAIN = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a call was traced, when the one before had been too."""

    said: str
    hint: str


_ANY = _Cause(
    "",
    "make the tf.function once, pass numbers as tensors, and give it an input_signature or reduce_retracing=True",
)
_MADE_ANEW = _Cause("a new tf.function each time", "make the tf.function once, outside the step")


@dataclass(slots=True)
class _Traced:
    """A function that was traced in training, by its code."""

    code: CodeType
    count: int = 0
    steps: set[int] = field(default_factory=set)
    line: str = ""
    cause: _Cause = _ANY
    function: weakref.ref[Any] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def called(self, frame: FrameType) -> None:
        """Take note of a call that traced; the frame is that of TensorFlow's own call."""
        self.line = next((users.line_of(user) for user in users.frames()), "")
        function = frame.f_locals.get("self")
        if function is None:
            return  # another version of TensorFlow
        arguments = _described(self.code, frame.f_locals.get("args", ()), frame.f_locals.get("kwds", {}))
        if self.function is not None:
            same = self.function() is function
            self.cause = _difference(self.arguments, arguments) if same else _MADE_ANEW
        self.function, self.arguments = weakref.ref(function), arguments

    @property
    def where(self) -> str:
        made = users.definition(self.code)
        return made or self.line if self.cause is _MADE_ANEW else self.line or made


def _described(code: CodeType, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """What tracing goes by: the value of a Python number, the shape and type of a tensor."""
    names = code.co_varnames[: code.co_argcount]
    if names[:1] == ("self",) and len(names) > len(args) + len(named):
        names = names[1:]
    values = {**{names[i] if i < len(names) else f"argument {i + 1}": arg for i, arg in enumerate(args)}, **named}
    return {name: [_leaf(leaf) for leaf in tf.nest.flatten(value)] for name, value in values.items()}


def _leaf(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tf.Tensor | np.ndarray):
        return tuple(value.shape)
    return type(value).__name__


def _difference(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> _Cause:
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
    return _ANY


class RetraceWatch:
    """Told when a step begins and ends; what is traced in half of the steps or more is a finding."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.steps = 0
        self.traced: dict[CodeType, _Traced] = {}
        self.in_step = False
        counter = getattr(polymorphic_function, _COUNTER, None)
        if counter is not None:
            setattr(polymorphic_function, _COUNTER, _Listening(counter, self))

    def step_begins(self) -> None:
        self.in_step = True

    def step_ended(self) -> None:
        self.in_step = False
        self.steps += 1
        for traced in self.traced.values():
            if len(traced.steps) >= max(_LEAST_STEPS, _LEAST_SHARE * self.steps):
                self.progress.found(_finding(traced, self.steps), about=f"{traced.code.co_name} {id(traced.code)}")

    def heard(self, code: object, frame: FrameType) -> None:
        if self.in_step and isinstance(code, CodeType):
            traced = self.traced.setdefault(code, _Traced(code))
            traced.count += 1
            traced.steps.add(self.steps)
            traced.called(frame)


class _Listening:
    """TensorFlow's counter of calls that traced, with a listener."""

    def __init__(self, counter: Any, watch: RetraceWatch) -> None:
        self.counter = counter
        self.watch = watch

    def called_without_tracing(self, key: Any) -> None:
        self.counter.called_without_tracing(key)

    def called_with_tracing(self, key: Any, *rest: Any) -> None:
        self.watch.heard(key, sys._getframe(1))
        self.counter.called_with_tracing(key, *rest)


def _finding(traced: _Traced, steps: int) -> Finding:
    theirs = users.is_users(traced.code.co_filename)
    name = f"{traced.code.co_name}()" if theirs else "the training step"
    because = f": {traced.cause.said}" if traced.cause.said else ""
    return Finding(
        kind="retrace",
        message=f"{name} was traced {traced.count} times in {steps} steps{because}",
        where=traced.where,
        hint=traced.cause.hint,
    )
