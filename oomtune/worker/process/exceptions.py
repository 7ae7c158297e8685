"""Turns an exception into a `RaisedError`: a short reason, and a traceback that shows only the user's own code.

TensorFlow and Keras put whole stacks and graph node names into their messages. This module cuts them out.
"""

from __future__ import annotations

import re
import traceback

from oomtune.domain import RaisedError
from oomtune.errors import OomtuneError
from oomtune.worker.watch import user_frames

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+?)(?:\s+\*+)?$')
_NODE = re.compile(r"^Detected at node (?P<node>\S+) defined at", re.MULTILINE)
# Graph nodes and the traced function, which TensorFlow appends to the reason.
_GRAPH_NAMES = re.compile(r"\{\{.*?\}\}|\[\[.*?\]\]|\[Op:[^\]]*\](?: name:)?")
# Keras prints the reason in bold, between the name of the call and its arguments.
_BOLD = re.compile(r"\x1b\[1m(?P<text>.*?)\x1b\[0m", re.DOTALL)
_TRACEBACK = "Traceback (most recent"
_LIBRARY_PHRASES = ("Graph execution error", "in user code:", "Exception encountered when calling", _TRACEBACK)


def to_raised_error(error: BaseException) -> RaisedError:
    """Return the exception as plain data that another process can read without the exception's class."""
    kind, is_ours = type(error), isinstance(error, OomtuneError)
    return RaisedError(
        type_name=f"{kind.__module__}.{kind.__qualname__}",
        bases=tuple(base.__name__ for base in kind.__mro__),
        message=error.message if isinstance(error, OomtuneError) else reason(error),
        traceback=user_traceback((error.__cause__ or error) if is_ours else error),
        hint=error.hint if isinstance(error, OomtuneError) else "",
    )


def reason(error: BaseException) -> str:
    """Return why the exception was raised, without library stacks. Messages from the user's code stay whole."""
    # str() of a KeyError is the repr of its argument.
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if not any(phrase in message for phrase in _LIBRARY_PHRASES):
        return str(error)
    bold = _BOLD.search(message)
    if bold is not None:
        return " ".join(bold["text"].split())
    node = _NODE.search(message)
    text = " ".join(_GRAPH_NAMES.sub("", _after_frames(message)).split())
    return f"{text} (at node {node['node']})" if node is not None else text


def _after_frames(message: str) -> str:
    """Return the text after the last frame and its line of code, or the text before the first if there is none."""
    lines = message.splitlines()
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        return message
    rest = lines[frames[-1] + 1 :]
    while rest and rest[0].strip():
        rest = rest[1:]  # the line of code, and the marks below it
    return "\n".join(rest).strip() or "\n".join(lines[: frames[0]]).partition(_TRACEBACK)[0]


def user_traceback(error: BaseException) -> str:
    """Return the traceback from the first line of the user's code on, or "" if it has none."""
    message, short = str(error), reason(error)
    # An error of a graph op was raised far from the user's line; TensorFlow lists the right frames in its message.
    in_message = frames_in_message(message) if short != message else ""
    if in_message:
        return f"Traceback (most recent call last):\n{in_message}{type(error).__name__}: {short}\n"
    shown = traceback.TracebackException.from_exception(error)
    first = next((i for i, frame in enumerate(shown.stack) if user_frames.is_user_file(frame.filename)), None)
    if first is None:
        return ""
    frames = [frame for frame in shown.stack[first:] if not user_frames.is_own_file(frame.filename)]
    shown.stack = traceback.StackSummary.from_list(frames)
    formatted = "".join(shown.format(chain=False))
    return formatted.replace(message, short) if message else formatted


def frames_in_message(message: str) -> str:
    """Return the user's frames that a library listed in its message, formatted as in a traceback; "" if none."""
    frames = [match for line in message.splitlines() if (match := _FRAME.match(line))]
    summaries = [
        traceback.FrameSummary(frame["file"], int(frame["line"]), frame["function"])
        for frame in frames
        if user_frames.is_user_file(frame["file"])
    ]
    return "".join(traceback.StackSummary.from_list(summaries).format())
