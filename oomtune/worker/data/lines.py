"""Read files with one sample per line, whole or in evenly spaced stretches. CSV, JSON lines and text share this."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from oomtune.domain import Tokenizer
from oomtune.errors import DataUnreadable
from oomtune.worker.data.samples import Checker, RawSample, checked_samples
from oomtune.worker.data.source import Axis, Bounds, Stream, unreadable

_STRETCH_BYTES = 4 * 1024**2
_MIN_STRETCHES = 8
_MAX_LINE_BYTES = 64 * 1024**2
# Compressed text has about a quarter of its size. This ratio only decides whether files are read whole.
_GZIP_RATIO = 4


class Lines:
    """Reads the lines of files, and tracks how much was read and the place of the latest line."""

    def __init__(self, files: list[Path], bounds: Bounds, key: str, *, from_start: bool = False) -> None:
        """`key` is the spec's entry with the files. With `from_start` a sampled file is read as one stretch."""
        self.files = files
        self.key = key
        self._sizes = {file: file.stat().st_size for file in files}
        self._total_bytes = sum(self._sizes.values())
        unpacked_bytes = sum(size * (_GZIP_RATIO if file.suffix == ".gz" else 1) for file, size in self._sizes.items())
        self.is_sampled = unpacked_bytes > bounds.whole_bytes
        self._stretches_bytes = bounds.stretches_bytes
        self._from_start = from_start
        self._file = files[0]
        self._line_number: int | None = 0
        """None in a stretch that does not begin at the file's start."""
        self._offset = 0
        self._earlier_files_bytes = 0
        self._file_bytes = 0
        self.ended_early = False
        """Whether reading stopped before the end of the latest file."""

    @property
    def where(self) -> str:
        """The place of the latest line."""
        if self._line_number is None:
            return f"{self._file}, near byte {self._offset:,}"
        return f"{self._file}:{self._line_number}"

    @property
    def _read_bytes(self) -> int:
        return self._earlier_files_bytes + self._file_bytes

    def share_read(self, _count: int) -> float:
        expected = min(self._total_bytes, self._stretches_bytes) if self.is_sampled else self._total_bytes
        return min(1.0, self._read_bytes / max(1, expected))

    def estimate_total(self, count: int) -> int | None:
        """Return the estimated number of samples if `count` were read, None if all were read."""
        if not self.is_sampled or self._read_bytes >= self._total_bytes:
            return None
        return round(count * self._total_bytes / max(1, self._read_bytes))

    def read(self, file: Path) -> Iterator[str]:
        """Yield the lines of one file, with their line ends."""
        self._earlier_files_bytes += self._file_bytes
        self._file, self._line_number, self._offset, self._file_bytes = file, 0, 0, 0
        self.ended_early = False
        try:
            with file.open("rb") as raw:
                yield from map(self._decode, self._gzip_lines(raw) if file.suffix == ".gz" else self._plain_lines(raw))
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(self.where, error, self.key, "the file is damaged or cut short; write it again") from None

    def _plain_lines(self, raw: IO[bytes]) -> Iterator[bytes]:
        position = 0
        for start, end in self._stretches(self._sizes[self._file]):
            if start > position:
                # Start one byte early, to keep a line that begins exactly here.
                position = raw.seek(start - 1)
                position += len(raw.readline())
                self._line_number = None
            while position < end and (line := self._next_line(raw)):
                position += len(line)
                self._offset = position
                self._file_bytes += len(line)
                yield line
        self.ended_early = position < self._sizes[self._file]

    def _gzip_lines(self, raw: IO[bytes]) -> Iterator[bytes]:
        """Read a compressed file from its start. Progress is measured in compressed bytes."""
        size = self._sizes[self._file]
        limit = self._stretches_bytes * size / self._total_bytes if self.is_sampled else size
        with gzip.GzipFile(fileobj=raw) as unpacked:
            while (not self.is_sampled or raw.tell() < limit) and (line := self._next_line(unpacked)):
                self._file_bytes = min(raw.tell(), size)
                yield line
            if not self.is_sampled:
                self._file_bytes = size
            self.ended_early = self._file_bytes < size

    def _next_line(self, file: IO[bytes] | gzip.GzipFile) -> bytes:
        line = file.readline(_MAX_LINE_BYTES)
        if self._line_number is not None and line:
            self._line_number += 1
        if len(line) == _MAX_LINE_BYTES:
            raise DataUnreadable(
                f"{self.where}: a line longer than {_MAX_LINE_BYTES:,} bytes ({self.key})",
                hint="expected one sample per line",
            )
        return line

    def _stretches(self, size: int) -> list[tuple[int, int]]:
        if not self.is_sampled:
            return [(0, size)]
        budget = max(1, self._stretches_bytes * size // self._total_bytes)
        if self._from_start:
            return [(0, budget)]
        length = max(1, min(_STRETCH_BYTES, budget // _MIN_STRETCHES))
        count = max(1, budget // length)
        return [(start := index * size // count, start + length) for index in range(count)]

    def _decode(self, line: bytes) -> str:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise unreadable(
                self.where, f"byte {error.start + 1} of the line is not UTF-8", self.key, "save it as UTF-8"
            ) from None
        return text.removeprefix("\ufeff") if self._line_number == 1 else text


def line_stream(
    open_lines: Callable[[], Lines],
    read: Callable[[Lines], Iterator[RawSample]],
    checker: Checker,
    tokenizer: Tokenizer,
    folder: str,
    *,
    axes: Mapping[str, Axis],
) -> Stream:
    """Return a stream of the samples that `read` makes from lines, checked and tokenized."""
    lines = open_lines()
    return Stream(
        samples=checked_samples(read(lines), checker, tokenizer, folder, reread=lambda: read(open_lines())),
        name=str(lines.files[0]),
        key=lines.key,
        share_read=lines.share_read,
        estimate_total=lines.estimate_total,
        axes=axes,
    )
