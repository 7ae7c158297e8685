"""What `oomtune diagnose` does: read a crash log in pieces, whatever its encoding, and explain the failure in it."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from oomtune.diagnosis import Diagnosis, diagnose
from oomtune.diagnosis.encodings import as_utf8
from oomtune.diagnosis.remedies import remedies
from oomtune.diagnosis.remedy import Remedy
from oomtune.errors import UsageProblem

_BLOCK_BYTES = 1024**2
_BOMS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_TEXT_CONTROLS = b"\t\n\r\b\f\x1b\0"  # NULs remain from UTF-16, and from logs that a crash cut short
_MOST_CONTROLS = 0.05
_BLANK = b" \t\r\n\f\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedLog:
    diagnosis: Diagnosis
    remedies: list[Remedy]

    @property
    def exit_code(self) -> int:
        if self.diagnosis.is_memory:
            return 0
        return 3 if self.diagnosis.failed else 2


def diagnose_file(log: str) -> DiagnosedLog:
    """Diagnose a log file. Raises `UsageProblem` if it can't be read, is empty or is not text."""
    with _open(log) as file:
        return diagnose_stream(file, log)


def diagnose_stream(file: BinaryIO, name: str) -> DiagnosedLog:
    """Diagnose an open log; `name` is what errors call it."""
    diagnosis = diagnose(_blocks(file, name))
    return DiagnosedLog(diagnosis=diagnosis, remedies=remedies(diagnosis))


def _open(log: str) -> BinaryIO:
    try:
        return Path(log).open("rb")
    except FileNotFoundError:
        raise UsageProblem(f"no such file: {log}", hint="give the log of the failed run, or - for stdin") from None
    except IsADirectoryError:
        raise UsageProblem(f"{log} is a folder", hint="give the log file itself") from None
    except (OSError, ValueError) as error:
        raise UsageProblem(f"{log} can't be read: {error}") from None


def _blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Return the log in pieces, decoded to UTF-8 if it starts with a UTF-16 byte order mark."""
    first = _first_block(file, name)
    encoding = _BOMS.get(first[:2])
    if encoding is None and _is_binary(first[: 64 * 1024]):
        raise UsageProblem(f"{name} is not text", hint="if it is compressed: zcat LOG | oomtune diagnose -")
    blocks = _with_rest(first, file, name)
    return blocks if encoding is None else as_utf8(blocks, encoding)


def _first_block(file: BinaryIO, name: str) -> bytes:
    """Return the first block with text in it. A log that was truncated while being written starts with NULs."""
    lines = 0
    while block := _read(file, name):
        text = block.lstrip(b"\0")
        if text.strip(_BLANK):
            return b"\n" * lines + (text if len(text) < len(block) - 1 else block)
        lines += block.count(b"\n")
    raise UsageProblem(f"{name} is empty", hint="did the run write to another file? `2>&1` sends errors there too")


def _with_rest(first: bytes, file: BinaryIO, name: str) -> Iterator[bytes]:
    yield first
    while block := _read(file, name):
        yield block


def _read(file: BinaryIO, name: str) -> bytes:
    try:
        return file.read(_BLOCK_BYTES)
    except OSError as error:
        raise UsageProblem(f"{name} can't be read: {error.strerror}") from None


def _is_binary(head: bytes) -> bool:
    controls = sum(head.count(bytes([byte])) for byte in range(32) if byte not in _TEXT_CONTROLS)
    return controls > _MOST_CONTROLS * len(head) or head.count(b"\0") > 0.6 * len(head)
