from __future__ import annotations

from pathlib import Path

import pytest

from oomtune.domain import Scan
from oomtune.errors import OutputNotWritable
from oomtune.storage.scans import SavedScan

SCAN = Scan(samples=3, read=3, lengths=((4, 2), (9, 1)), ranges={"inputs": (0, 30)})
KEY = {"dataset": {"csv": "a.csv"}, "files": {"a.csv": "digest"}}


def test_a_scan_is_read_back_until_its_data_changes(tmp_path: Path) -> None:
    saved = SavedScan.of(tmp_path, KEY)
    saved.make_folder()
    saved.save(SCAN)
    saved.rows_path.write_bytes(b"rows")
    assert SavedScan.of(tmp_path, KEY).load() == SCAN
    assert SavedScan.of(tmp_path, {**KEY, "files": {"a.csv": "changed"}}).load() is None


def test_an_incomplete_scan_is_no_scan(tmp_path: Path) -> None:
    saved = SavedScan.of(tmp_path, KEY)
    assert saved.load() is None
    saved.make_folder()
    saved.save(SCAN)
    assert saved.load() is None, "its samples are missing"
    saved.rows_path.write_bytes(b"rows")
    saved.path.write_text("{")
    assert saved.load() is None


def test_a_scan_that_can_not_be_saved_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "scans").write_text("a file")
    with pytest.raises(OutputNotWritable, match=f"can't be saved in {tmp_path / 'scans'}"):
        SavedScan.of(tmp_path, KEY).make_folder()
