"""What scans of the data showed, saved beside the ledgers until the data or the versions change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from oomtune.domain import Scan
from oomtune.errors import OutputNotWritable

_SCAN = TypeAdapter(Scan)
# The format of the samples saved beside a scan; raise it with every change to how they are written.
_ROWS_FORMAT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedScan:
    """The files of one scan: `path` for what it showed, `rows_path` for the longest samples."""

    path: Path
    rows_path: Path

    @classmethod
    def of(cls, ledger_folder: Path, key: Mapping[str, Any]) -> SavedScan:
        """Return the files for `key`, which holds everything that decides what a scan would show."""
        text = json.dumps({**key, "rows": _ROWS_FORMAT}, sort_keys=True, default=str)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        folder = ledger_folder / "scans"
        return cls(path=folder / f"{name}.json", rows_path=folder / f"{name}.npz")

    def load(self) -> Scan | None:
        """Return the saved scan, or None if there is none that is complete."""
        try:
            return _SCAN.validate_python(json.loads(self.path.read_bytes())) if self.rows_path.is_file() else None
        except (OSError, ValueError):
            return None

    def make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._not_writable(error) from None

    def save(self, scan: Scan) -> None:
        try:
            self.path.write_text(json.dumps(_SCAN.dump_python(scan, mode="json")))
        except OSError as error:
            raise self._not_writable(error) from None

    def _not_writable(self, error: OSError) -> OutputNotWritable:
        return OutputNotWritable(
            f"the scan of the data can't be saved in {self.path.parent}: {error.strerror}",
            hint="free disk space, or make a folder .oomtune beside the spec",
        )
