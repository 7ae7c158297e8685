"""What TensorFlow and Keras say went wrong, without the frames and the names of graphs that their messages hold."""

from __future__ import annotations

import re
import traceback

from oomtune.worker.watch import user_frames as users

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+?)(?:\s+\*+)?$')
_NODE = re.compile(r"^Detected at node (?P<node>\S+) defined at", re.MULTILINE)
# What stands behind the reason: the nodes of the graph and the function that it was made from.
_MARKS = re.compile(r"\{\{.*?\}\}|\[\[.*?\]\]|\[Op:[^\]]*\](?: name:)?")
# Keras prints the reason in bold, between what was called and what it was called with.
_BOLD = re.compile(r"\x1b\[1m(?P<said>.*?)\x1b\[0m", re.DOTALL)
_TELLING = ("Graph execution error", "in user code:", "Exception encountered when calling", "Traceback (most recent")


def reason(error: BaseException) -> str:
    """Why it was raised, short enough to be read; the whole message where that is nobody's but the user's."""
    # A KeyError shows what it was given as Python would write it.
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if not any(word in message for word in _TELLING):
        return str(error)
    bold = _BOLD.search(message)
    if bold is not None:
        return " ".join(bold["said"].split())
    node = _NODE.search(message)
    said = " ".join(_MARKS.sub("", _after_frames(message)).split())
    return f"{said} (at node {node['node']})" if node is not None else said


def _after_frames(message: str) -> str:
    """What follows the last frame and its line of code. If nothing does, what was said before the first."""
    lines = message.splitlines()
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        return message
    behind = lines[frames[-1] + 1 :]
    while behind and behind[0].strip():
        behind = behind[1:]  # the line of code, and marks below it
    return "\n".join(behind).strip() or "\n".join(lines[: frames[0]]).partition("Traceback (most recent")[0]


def users_frames(message: str) -> str:
    """The frames of the user's own code in a message, as a traceback shows them; empty when there are none."""
    found = [match for line in message.splitlines() if (match := _FRAME.match(line))]
    theirs = [frame for frame in found if users.is_users(frame["file"])]
    shown = [traceback.FrameSummary(frame["file"], int(frame["line"]), frame["function"]) for frame in theirs]
    return "".join(traceback.StackSummary.from_list(shown).format())
