"""The few lines of a log that say something, out of hundreds of megabytes that don't, in bounded memory and time.

Nearly all of a long log is a few lines with other numbers in them. Without their numbers those are the same, and each
is looked at once. Of lines that differ and have the same telling words only some are read: the first, then the last of
a block, and always those that a block ends with.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from oomtune.diagnosis.encodings import KILLED, as_written, decoded

# Words without which a line neither tells of a failure nor has a fact about one. Looking for fifty plain words, one
# after the other, is several times as fast as one expression with all of them.
_TELLING = (
    b"memory", b"oom", b"alloc", b"exhaust", b"kill", b"error", b"exception", b"traceback", b"abort", b"seg", b"fail",
    b"fatal", b"dumped", b"interrupt", b"no space", b"quota", b"initialized", b"[[", b"node", b"[op:", b"exit",
    b"signal", b"terminat", b"cancelled", b"preempt", b"evicted", b"hbm", b"could not", b"cannot", b"can't", b"unable",
    b"_status_", b": nan", b"inuse:", b"limit", b"sum total", b"larger than", b"no algorithm", b"in use",
    b"available ram", b"too many", b"low on resource", b"op_name", b"shape: ", b"^c", b"stopping", b"insufficient",
    b"unavailable",
    b"command not found", b"out_of_me", b"capacity", *(word.lower() for word in as_written(KILLED)),
)  # fmt: skip
# The name of an allocator's source stands on every line of its dumps, and errors are also what models measure.
_EVERYWHERE = (b"allocator", b"_error: ")
_LONGEST = 16 * 1024
_BLOCK = 1024**2
_MOST_SILENT = 10_000
# What the log ends with is looked at more closely: this much of it, and so many lines, as of any other block.
_END = 256 * 1024
_AT_THE_END = 40
_AT_A_BLOCKS_END = 12
# How many lines with the same telling words are read in full, and how many in all.
_OF_A_KIND = 100
_MOST_READ = 3_000
_AS_LINE_ENDS = bytes.maketrans(b"\r\b", b"\n\n")  # progress bars are drawn over themselves with either
_CHANGING = b"0123456789=>.\xe2\x94\x81"  # what differs between two drawings of a bar
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[^\n])")
_FRAME = re.compile(rb"\s*File \".*\", line \d+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TRACEBACK = b"Traceback (most recent call last)"
_MOST_FRAMES = 4000
# An exception's type, alone or before its message: a name with a capital, or one from a module.
_TYPE = re.compile(rb"((?:[A-Za-z_]\w*\.)*_*[A-Z]\w*|(?:[A-Za-z_]\w*\.)+[a-z]\w*)(?=:\s|:?\s*$|:?\\n)")
_MOST_BETWEEN = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line that may tell something; none where only `skipped`, the text since the last such line, is of use."""

    number: int
    text: str
    source: bool
    """Is it a line of source code that a traceback shows?"""
    skipped: bytes
    raised: str = ""
    """The type of the exception, where the line is the one that a traceback leads to."""


def telling_lines(blocks: Iterable[bytes]) -> Iterator[Line]:
    """The lines worth reading, in order, each with what was passed over before it."""
    splitter = _Splitter()
    carried = b""
    for block in blocks:
        # Without NULs, UTF-16 that was written into a log of bytes reads as what it says.
        carried += block.replace(b"\0", b"")
        if len(carried) >= _BLOCK + _END:
            most = len(carried) - _END
            end = max(carried.rfind(ending, 0, most) for ending in (b"\n", b"\r", b"\b")) + 1 or most
            yield from splitter.lines(_ESCAPES.sub(b"", carried[:end]), closely=_AT_A_BLOCKS_END)
            carried = carried[end:]
    # A colour in the middle of a word would hide it.
    yield from splitter.lines(_ESCAPES.sub(b"", carried), closely=_AT_THE_END)


class _Splitter:
    """Counts lines across blocks, and keeps the little that the next block needs of the last."""

    def __init__(self) -> None:
        self.number = 1
        self.above = b""
        self.choice = _Choice()
        self.tracebacks = _Tracebacks()

    def lines(self, raw: bytes, *, closely: int) -> Iterator[Line]:
        text = raw.translate(_AS_LINE_ENDS)
        lines = text.split(b"\n")
        patterns = text.translate(None, _CHANGING).split(b"\n")
        chosen = self.choice.of(patterns, closely)
        raised = self.tracebacks.ends(lines, chosen)
        if raised:
            chosen = sorted({*chosen, *raised})
        starts = list(accumulate((len(line) + 1 for line in lines), initial=0)) if chosen else []
        at = counted = 0
        for index in chosen:
            self.number += raw.count(b"\n", counted, starts[index])
            counted = starts[index]
            above = next((line for line in reversed(lines[max(0, index - 3) : index]) if line), self.above)
            line, skipped = lines[index], _each_once(patterns, lines, at, index)
            source = _is_source(above, line)
            yield Line(self.number, clean(_near_the_word(line)), source, skipped, raised.get(index, ""))
            at = index + 1
        self.number += raw.count(b"\n", counted)
        self.above = next((line[-1024:] for line in reversed(lines[-3:]) if line), b"")
        yield Line(self.number, "", False, _each_once(patterns, lines, at, len(lines)))


class _Choice:
    """Which lines to read, so that a log of any size and kind is read in seconds."""

    def __init__(self) -> None:
        self.silent: set[bytes] = set()
        self.kinds: Counter[int] = Counter()
        self.read = 0

    def of(self, patterns: list[bytes], closely: int) -> list[int]:
        words = self._telling(list(set(patterns) - self.silent))
        if not words:
            return []
        kinds = [words.get(pattern, 0) for pattern in patterns]
        telling = [index for index, kind in enumerate(kinds) if kind]
        last = {kinds[index]: index for index in telling}
        # What a log says over and over is read once a block, where it says it last.
        chosen = {*telling[-closely:], *sorted(last.values())[-closely:]}
        rare = {kind for kind in last if self.kinds[kind] < _OF_A_KIND}
        for index in telling if rare else ():
            kind = kinds[index]
            if kind in rare and self.read < _MOST_READ and self.kinds[kind] < _OF_A_KIND:
                self.kinds[kind] += 1
                self.read += 1
                chosen.add(index)
        return sorted(chosen)

    def _telling(self, patterns: list[bytes]) -> dict[bytes, int]:
        words = _words_in(patterns)
        if len(self.silent) < _MOST_SILENT:
            self.silent |= {pattern for pattern in patterns if pattern not in words and len(pattern) < 512}
        return words


def _words_in(patterns: list[bytes]) -> dict[bytes, int]:
    """The lines that have telling words, each with a bit for each word."""
    if not patterns:
        return {}
    lowered = b"\n".join(patterns).lower()
    for everywhere in _EVERYWHERE:
        lowered = lowered.replace(everywhere, b" ")
    lines = _as_text(lowered).split("\n")
    found = [0] * len(lines)
    plain = lowered.isascii()
    for bit, word in enumerate(_TELLING):
        if (word.isascii() or not plain) and word in lowered:
            letters = _as_text(word)
            for index in [index for index, line in enumerate(lines) if letters in line]:
                found[index] |= 1 << bit
    return {pattern: words for pattern, words in zip(patterns, found, strict=True) if words}


def _as_text(raw: bytes) -> str:
    """Each byte as a letter: Python finds short words in text five times as fast as in bytes."""
    return raw.decode("latin-1")


class _Tracebacks:
    """Finds the exceptions that tracebacks lead to, whatever their names: the first line that is not indented."""

    def __init__(self) -> None:
        self.column: int | None = None

    def ends(self, lines: list[bytes], chosen: list[int]) -> dict[int, str]:
        """The lines with exceptions and the exceptions' types; a traceback may have begun in the block before."""
        found = {}
        begins = [(-1, self.column)] if self.column is not None else []
        self.column = None
        begins += [(index, lines[index].find(_TRACEBACK)) for index in chosen if _TRACEBACK in lines[index]]
        for index, column in begins:
            if column is not None and (end := self._end(lines, index + 1, column)):
                found[end[0]] = end[1]
        return found

    def _end(self, lines: list[bytes], start: int, column: int) -> tuple[int, str] | None:
        between = 0
        for index in range(start, min(start + _MOST_FRAMES, len(lines))):
            line = lines[index]
            # Logs of other streams may come in between; they don't begin with a type.
            if named := _TYPE.match(line, column):
                return index, named[1].decode("utf-8", "replace").rpartition(".")[2]
            between += bool(line[column:].strip()) and not line[column : column + 1].isspace()
            if _TRACEBACK in line or between > _MOST_BETWEEN:
                return None
        self.column = column if start + _MOST_FRAMES >= len(lines) else None
        return None


def _each_once(patterns: list[bytes], lines: list[bytes], start: int, end: int) -> bytes:
    """These lines, and of those that differ only in their numbers the last."""
    if start == end:
        return b""
    return b"\n".join(dict(zip(patterns[start:end], lines[start:end], strict=True)).values())


def _is_source(above: bytes, line: bytes) -> bool:
    return line[:1].isspace() and _FRAME.match(above) is not None


def _near_the_word(line: bytes) -> bytes:
    """A line of megabytes is read near the word that tells."""
    if len(line) <= 2 * _LONGEST:
        return line
    lowered = line.lower()
    at = min((found for word in _TELLING if (found := lowered.find(word)) >= 0), default=0)
    return line[max(0, at - _LONGEST) : at + _LONGEST]


def clean(line: bytes) -> str:
    """The line as a person would see it: without controls."""
    return _CONTROL.sub("", decoded(line))
