"""Logs as bytes: UTF-8 for the most part, and what shells, consoles and editors put in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# What shells say, in their users' languages, of a job that was killed.
KILLED = ("已杀死", "已殺死", "Getötet", "Убито", "Tué")
# Consoles that are older than UTF-8 write them so.
_OLDER = ("latin-1", "cp1251", "koi8-r", "gbk", "big5")
# A part without a line end, of which no more is held than this.
_LONGEST = 1024**2
_NOT_UTF8 = {0xDC00 + byte: byte for byte in range(0x80, 0x100)}


def decoded(line: bytes) -> str:
    """The line as UTF-8, and each byte that is not as Latin-1: a log may hold both, and no byte is lost."""
    return line.decode("utf-8", "surrogateescape").translate(_NOT_UTF8)


def as_written(words: Iterable[str]) -> list[bytes]:
    """The words in every encoding that has their letters."""
    return list(dict.fromkeys(raw for word in words for raw in _in_each(word)))


def _in_each(word: str) -> Iterator[bytes]:
    yield word.encode()
    for encoding in _OLDER:
        # What an encoding lacks it writes as a question mark.
        raw = word.encode(encoding, "replace")
        if b"?" not in raw:
            yield raw


def as_utf8(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """A log that begins in UTF-16, as UTF-8. A shell that adds to it may write bytes, and the next one UTF-16 again."""
    line_end = "\n".encode(encoding)
    carried = b""
    for piece in pieces:
        *lines, carried = (carried + piece).split(line_end)
        yield b"".join(_part(line, encoding) + b"\n" for line in lines)
        if len(carried) > _LONGEST:
            whole = carried.rfind(b"\n") + 1 if b"\0" not in carried else 0
            whole = whole or len(carried) // 2 * 2
            yield _part(carried[:whole], encoding)
            carried = carried[whole:]
    yield _part(carried, encoding)


def _part(raw: bytes, encoding: str) -> bytes:
    """What stands between two line ends of UTF-16. Without NULs it is bytes, as are whole lines of bytes before it."""
    nul = raw.find(b"\0")
    if nul < 0:
        return raw
    added = raw.rfind(b"\n", 0, nul) + 1
    # A letter of another script may have a byte like a line end's; then the NUL is on the wrong side of its pair.
    if (nul - added) % 2 != "\n".encode(encoding).index(b"\0"):
        added = 0
    return raw[:added] + raw[added:].decode(encoding, "replace").encode()
