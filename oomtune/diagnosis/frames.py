"""In what frame a line speaks: an exception, a status, a log line of the runtime, source code, or prose."""

from __future__ import annotations

import re
from enum import Enum, auto


class Frame(Enum):
    NONE = auto()
    INFO = auto()
    WARNED = auto()
    """A warning: W in TensorFlow's log, or one of Python's."""
    LOGGED = auto()
    """An error that the runtime logged: E in TensorFlow's log."""
    FATAL = auto()
    RAISED = auto()
    PROGRAM = auto()
    """An exception of a type that says a mistake in the program, whatever its message mentions."""
    ERROR = auto()

    @property
    def is_logged(self) -> bool:
        """Written by the runtime and not raised?"""
        return self in (Frame.WARNED, Frame.LOGGED)


_LOG = re.compile(
    r"^[>:\s]*(?:[\[(][^\])]{1,60}[\])]:? ?)*(?:\d{4}-\d\d-\d\d[ T][\d:.,]+:? )?"
    r"(?P<level>[IWEF])(?:\d{4} [\d:.]+)?\s+(?:\d+ )?\S+:\d+\] ?"
)
_LEVELS = {"I": Frame.INFO, "W": Frame.WARNED, "E": Frame.LOGGED, "F": Frame.FATAL}
# Python's logging and its kin: a level in capitals after no more than a time and the logger's name.
_LEVEL_WORD = re.compile(r"(?:^|(?<=[\s\[(<|:-]))(?P<word>TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?)(?=[\s\])>|:-])")
_LEVEL_KEY = re.compile(r"\"(?:level|severity|levelname)\": ?\"(?P<word>trace|debug|info|notice|warn\w*)\"", re.I)
_AFTER_LEVEL = re.compile(r"[\s\])>|:-]*(?:\w[\w.]*:(?=\S))?\s*")
_MOST_BEFORE_LEVEL = 6
EXCEPTION = re.compile(
    r"(?:^|[\s:|\]<'\"-])(?P<type>(?:[a-z_]\w*\.)*[A-Z_]\w*(?:Error|Exception|ResourceExhausted)|KeyboardInterrupt)\b"
    r"(?: \(see above for traceback\))?(?='?>?\s*(?:[:,(]|$))"
)
_STATUS_HEAD = re.compile(
    r"(?:^|[\s:(])(?:resource[ _]exhausted|internal|unknown|aborted|unavailable|invalid[ _]argument|not[ _]found"
    r"|failed[ _]precondition|out[ _]of[ _]range|data[ _]loss|unimplemented|cancelled|deadline[ _]exceeded)\s*:",
    re.I,
)
_ERROR_WORD = re.compile(
    r"\b(?:error|fatal|failed|failure|aborted|status|terminate called|enforce fail|WARN Cuda)\b", re.I
)
_OF_THE_PROGRAM = {
    "AssertionError", "AttributeError", "FileNotFoundError", "ImportError", "IndentationError", "IndexError",
    "KeyError", "ModuleNotFoundError", "NameError", "NotImplementedError", "PermissionError", "RecursionError",
    "SyntaxError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "ValueError", "ZeroDivisionError",
    "JSONDecodeError",
}  # fmt: skip
# These carry what the system said, and only that decides.
_FROM_THE_SYSTEM = re.compile(r"winerror|errno|paging file", re.I)
# XLA raises a ValueError for any status: `ValueError: RESOURCE_EXHAUSTED: Failed to allocate`.
_FROM_THE_RUNTIME = re.compile(r"Error: (?:RESOURCE_EXHAUSTED|INTERNAL|UNKNOWN|ABORTED): ")
_SOURCE = re.compile(
    r"^(?:#|>>> |\.\.\. |-+> ?\d+|\d+\s+(?=\S*[\s(]))?\s*"
    r"(?:raise|except|return|def|import|assert|with|try|elif|print|class)\b"
    r"|^#|^>>> |^-+> ?\d+ |^@"
    # What someone typed, or a shell that shows what it runs.
    r"|^(?:\(\S+\) ?)?(?:\S+@\S+[:\s]\S*)?\$ |^\++ \S"
    # The names of tests that did not fail.
    r"|^\S+::\S+\s+(?:PASSED|SKIPPED|XFAIL)\b"
)
_PROSE = re.compile(
    r"\b(?:you|your|if|may|might|avoid\w*|prevent\w*|e\.g\.|such as|for example|often|usually|typical\w*|common\w*"
    r"|symptoms?|tips?|how to|hint|notorious|mitigat\w*|handling|encounter\w*|we|our|this|these|can lead|expect\w*)\b",
    re.I,
)
_TOPIC = re.compile(r"oom\b|memory|alloc|exhaust|killed", re.I)
_BULLET = re.compile(r"^(?:#{1,6} |[*+-] |\d+\. |\|)")
_SENTENCE = re.compile(r"\b(?:are|is|was|can|errors?|issues?|should|use|using|reduc\w+|when|because|for)\b", re.I)
_TENSORFLOW = re.compile(
    r"\[Op:|\{\{node|\[\[|trying to allocate [\d.]+|allocating tensor|tensor is not initialized|memory space"
    r"|attempting to (?:reserve|allocate)|\bOOM\b|allocator \(|tensorflow|xla|jax"
    r"|(?-i:\b(?:INTERNAL|UNKNOWN|ABORTED): )",
    re.I,
)


def without_prefix(line: str) -> str:
    """The line without the time, the level and the place in a source that loggers put before it."""
    text = line.strip()
    while not (log := _LOG.match(text)) and (level := _level(text)):
        text = text[_after(text, level) :].strip()
    return text[log.end() :].strip() if log else text


def frame_of(line: str) -> Frame:
    text = line.strip()
    log = _LOG.match(text)
    if log:
        return _LEVELS[log["level"]]
    level = _level(text) or _LEVEL_KEY.search(text)
    if level and level["word"].lower().startswith("warn"):
        return Frame.WARNED
    # A scheduler that forwards what a job says has each line of it at one level, tracebacks included.
    if level and not _forwarded(text, level):
        return Frame.INFO
    return frame_of(text[_after(text, level) :]) if level and level.re is _LEVEL_WORD else _told_by(text)


def _told_by(text: str) -> Frame:
    raised = EXCEPTION.search(text)
    if raised:
        return Frame.PROGRAM if is_mistake(raised["type"], text) else Frame.RAISED
    if _STATUS_HEAD.search(text):
        return Frame.RAISED
    return Frame.ERROR if _ERROR_WORD.search(text) else Frame.NONE


def is_mistake(exception: str, text: str) -> bool:
    """Is this type one for mistakes in the program, and not for what the system or the runtime said?"""
    name = exception.rpartition(".")[2]
    return name in _OF_THE_PROGRAM and not (_FROM_THE_SYSTEM.search(text) or _FROM_THE_RUNTIME.search(text))


def _level(text: str) -> re.Match[str] | None:
    found = _LEVEL_WORD.search(text, 0, 120)
    if found is None:
        return None
    before = text[: found.start()]
    return None if len(before.split()) > _MOST_BEFORE_LEVEL or EXCEPTION.search(before) else found


def _after(text: str, level: re.Match[str]) -> int:
    separator = _AFTER_LEVEL.match(text, level.end())
    return separator.end() if separator else level.end()


def _forwarded(text: str, level: re.Match[str]) -> bool:
    if level.re is _LEVEL_KEY:
        return EXCEPTION.search(text) is not None
    rest = text[_after(text, level) :]
    return EXCEPTION.match(rest) is not None or _LOG.match(rest) is not None


def is_source(text: str) -> bool:
    return _SOURCE.match(text) is not None


def is_prose(text: str) -> bool:
    """Does it talk of memory, as documentation, hints and warnings do, more than tell that it ran out?"""
    topic = _TOPIC.search(text)
    if topic is None:
        return False
    return bool(_PROSE.search(text, 0, topic.start()) or (_BULLET.match(text) and not EXCEPTION.match(text[2:])))


def starts_with_it(phrase: re.Pattern[str], text: str) -> bool:
    """Is the phrase all that the line says? A sentence goes on."""
    found = phrase.search(text)
    return found is not None and found.start() <= 12 and not _SENTENCE.search(text, found.end())


def is_tensorflow(text: str) -> bool:
    return _TENSORFLOW.search(text) is not None
