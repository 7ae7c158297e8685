"""A scan finds value ranges and their places, reports progress and leaves nothing behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomtune.domain import (
    NpzData,
)
from oomtune.errors import DataUnreadable
from oomtune.storage.ledger_index import clean
from oomtune.worker.data import open_source, worst_samples
from oomtune.worker.data.scan import scan
from tests.support.reading import Read


def test_a_file_that_vanished_after_the_spec_was_read_is_reported(tmp_path: Path, dataset: Any) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    spec = dataset(text={"path": "a.txt"})
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataUnreadable, match=r"dataset.text.path: no such file: .*a\.txt"):
        open_source(spec, str(tmp_path))


def test_float_targets_have_a_range_if_they_are_whole_but_float_inputs_do_not(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1.0,0.0\n2.0,5.0\n")
    result, _ = read(csv={"path": "a.csv", "inputs": "x", "targets": "y"})
    assert (result.ranges, result.fractions) == ({"targets.": (0, 5)}, {})
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2)), y=np.array([2.0, -1.0, 7.0]))
    result, _ = read(npz={"path": "a.npz"})
    assert (result.ranges, result.fractions) == ({"targets.": (-1, 7)}, {})
    np.savez(tmp_path / "b.npz", x=np.ones((3, 2)), y=np.array([2.0, 0.25, 7.0]))
    result, _ = read(npz={"path": "b.npz"})
    assert (result.ranges, result.fractions) == ({}, {"targets.": 0.25})


def test_progress_is_reported_while_samples_are_read(tmp_path: Path, dataset: Any) -> None:
    (tmp_path / "a.txt").write_text("a b\n" * 3500)
    reports: list[tuple[int, float]] = []
    scan(dataset(text={"path": "a.txt"}), str(tmp_path), lambda count, share: reports.append((count, share)))
    assert [count for count, _ in reports] == [1000, 2000, 3000, 3500]
    assert 0 < reports[0][1] < reports[-1][1] == 1.0


def test_the_places_of_the_smallest_and_largest_label_are_recorded(tmp_path: Path, read: Read) -> None:
    for name, labels in {"a": (0, 1, 1), "b": (2, -1, 0), "c": (1, 7, 2)}.items():
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"0,{label}\n" for label in labels))
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"x": [1], "y": {label / 2}}}\n' for label in labels))
    result, _ = read(csv={"path": "*.csv", "inputs": ["x"], "targets": "y"})
    assert result.ranges == {"targets.": (-1, 7)}
    assert result.places == {"targets.": (f"{tmp_path}/b.csv:3", f"{tmp_path}/c.csv:3")}
    result, _ = read(jsonl={"path": "*.jsonl", "inputs": "x", "targets": "y"})
    assert result.fractions == {"targets.": 0.5}
    assert result.places == {"targets.": (f"{tmp_path}/a.jsonl:2",) * 2}


def test_the_remains_of_a_killed_scan_are_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_arrays: Any, **_named: Any) -> None:
        raise KeyboardInterrupt

    np.savez(tmp_path / "a.npz", x=np.zeros((10, 3), "float32"), y=np.zeros(10, "float32"))
    dataset = NpzData(paths=("a.npz",), inputs="x", targets="y")
    result, samples = scan(dataset, str(tmp_path), lambda count, share: None)
    (tmp_path / "scans").mkdir()
    monkeypatch.setattr(np, "savez", killed)
    with pytest.raises(KeyboardInterrupt):
        worst_samples.save(samples, result.sequences, tmp_path / "scans" / "rows.npz")
    (left,) = (tmp_path / "scans").iterdir()
    assert clean([tmp_path], time.time() + 60).removed == (left,)
