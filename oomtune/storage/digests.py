"""Digests of the files that decide a trial, to notice when one changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

# If the files are larger than this in total, digests cover their sizes, their times and some pieces of them.
_WHOLE_BYTES = 256 * 1024**2
_PIECE_BYTES = 1024**2
_PIECES = 64


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """Return a digest of each file."""
    files = sorted(set(paths))
    if sum(path.stat().st_size for path in files) <= _WHOLE_BYTES:
        return {str(path): _digest(path) for path in files}
    return {str(path): _sampled_digest(path, _PIECES // len(files)) for path in files}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _sampled_digest(path: Path, pieces: int) -> str:
    state = path.stat()
    digest = hashlib.sha256(f"{state.st_size}-{state.st_mtime_ns}".encode())
    with path.open("rb") as file:
        for piece in range(pieces):
            file.seek(state.st_size * piece // pieces)
            digest.update(file.read(_PIECE_BYTES))
    return digest.hexdigest()
