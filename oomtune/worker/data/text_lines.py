"""Lines of text files, all of them or evenly spaced stretches, and where each one stands."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from oomtune.errors import DataUnreadable
from oomtune.worker.data.problems import unreadable
from oomtune.worker.data.source import Bounds

_STRETCH_BYTES = 4 * 1024**2
_FEWEST_STRETCHES = 8
_LONGEST_LINE_BYTES = 64 * 1024**2
# Text becomes about a quarter of its size; only whether to read all of it hangs on this.
_UNPACKS_TO = 4


class Lines:
    """The lines of some files. What has been read so far, and where the last line stood, can be asked at any time."""

    def __init__(self, files: list[Path], bounds: Bounds, key: str, *, from_start: bool = False) -> None:
        self.files = files
        self.key = key
        """The entry of the spec that names them."""
        self._sizes = {file: file.stat().st_size for file in files}
        self._total = sum(self._sizes.values())
        likely = sum(size * (_UNPACKS_TO if file.suffix == ".gz" else 1) for file, size in self._sizes.items())
        self.sampled = likely > bounds.whole_bytes
        self._stretches_bytes = bounds.stretches_bytes
        self._from_start = from_start
        self._file = files[0]
        self._number: int | None = 0
        self._offset = 0
        self._done = 0
        self._file_done = 0
        self.cut_off = False
        """Did the last file's lines end before the file did?"""

    @property
    def where(self) -> str:
        """The place of the last line."""
        if self._number is None:
            return f"{self._file}, near byte {self._offset:,}"
        return f"{self._file}:{self._number}"

    def share_read(self) -> float:
        if not self.sampled:
            return min(1.0, (self._done + self._file_done) / max(1, self._total))
        return min(1.0, (self._done + self._file_done) / max(1, min(self._total, self._stretches_bytes)))

    def in_all(self, count: int) -> int | None:
        """By estimate, if the stretches that were read gave this many; None when all was read."""
        done = self._done + self._file_done
        return round(count * self._total / max(1, done)) if self.sampled and done < self._total else None

    def of(self, file: Path) -> Iterator[str]:
        """The lines of one file with their ends."""
        self._done += self._file_done
        self._file, self._number, self._offset, self._file_done = file, 0, 0, 0
        self.cut_off = False
        try:
            with file.open("rb") as raw:
                yield from map(self._decoded, self._packed(raw) if file.suffix == ".gz" else self._plain(raw))
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(self.where, error, self.key, "the file is damaged or cut short; write it again") from None

    def _plain(self, raw: IO[bytes]) -> Iterator[bytes]:
        position = 0
        for start, end in self._stretches(self._sizes[self._file]):
            if start > position:
                # From one byte earlier, so that a line that begins right here is not lost.
                position = raw.seek(start - 1)
                position += len(raw.readline())
                self._number = None
            while position < end and (line := self._line(raw)):
                position += len(line)
                self._offset = position
                self._file_done += len(line)
                yield line
        self.cut_off = position < self._sizes[self._file]

    def _packed(self, raw: IO[bytes]) -> Iterator[bytes]:
        """A compressed file is read from its start; how far is known in compressed bytes."""
        size = self._sizes[self._file]
        most = self._stretches_bytes * size / self._total if self.sampled else size
        with gzip.GzipFile(fileobj=raw) as unpacked:
            while (self.sampled is False or raw.tell() < most) and (line := self._line(unpacked)):
                self._file_done = min(raw.tell(), size)
                yield line
            if not self.sampled:
                self._file_done = size
            self.cut_off = self._file_done < size

    def _line(self, file: IO[bytes] | gzip.GzipFile) -> bytes:
        line = file.readline(_LONGEST_LINE_BYTES)
        if self._number is not None and line:
            self._number += 1
        if len(line) == _LONGEST_LINE_BYTES:
            raise DataUnreadable(
                f"{self.where}: a line longer than {_LONGEST_LINE_BYTES:,} bytes ({self.key})",
                hint="expected one sample a line",
            )
        return line

    def _stretches(self, size: int) -> list[tuple[int, int]]:
        if not self.sampled:
            return [(0, size)]
        budget = max(1, self._stretches_bytes * size // self._total)
        if self._from_start:
            return [(0, budget)]
        length = max(1, min(_STRETCH_BYTES, budget // _FEWEST_STRETCHES))
        count = max(1, budget // length)
        return [(start := index * size // count, start + length) for index in range(count)]

    def _decoded(self, line: bytes) -> str:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise unreadable(
                self.where, f"byte {error.start + 1} of the line is not UTF-8", self.key, "save it as UTF-8"
            ) from None
        return text.removeprefix("\ufeff") if self._number == 1 else text
