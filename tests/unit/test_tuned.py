from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from oomtune import load_tuned
from oomtune.errors import OutputNotWritable, UsageProblem
from oomtune.tuned import check_output, write_tuned

VALUES = {
    "training": {"optimizer": {"class_name": "AdamW", "config": {"learning_rate": 1e-05}}, "loss": "mse"},
    "tuned": {
        "format": 1,
        "batch_size": 96,
        "sequence_length": 256,
        "precision": "mixed_bfloat16",
        "remat": "none",
        "gradient_accumulation_steps": 3,
        "effective_batch_size": 288,
        "evidence": {
            "confirmed": True,
            "device": {"kind": "cpu", "name": "x", "memory_limit_bytes": 1024**3},
            "oomtune": "0.1.0",
            "needs_environment": {"A": "1"},
        },
    },
}


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "model.tuned.yaml"
    write_tuned(path, VALUES)
    tuned = load_tuned(path)
    assert (tuned.batch_size, tuned.sequence_length, tuned.precision) == (96, 256, "mixed_bfloat16")
    assert (tuned.gradient_accumulation_steps, tuned.effective_batch_size) == (3, 288)
    assert (tuned.device_kind, tuned.memory_limit_bytes, tuned.confirmed) == ("cpu", 1024**3, True)
    assert tuned.training["optimizer"]["config"]["learning_rate"] == 1e-5
    assert tuned.environment == {"A": "1"}


def test_nothing_but_the_file_is_left_in_the_folder(tmp_path: Path) -> None:
    write_tuned(tmp_path / "a.yaml", VALUES)
    write_tuned(tmp_path / "a.yaml", {**VALUES, "name": "again"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]
    assert yaml.safe_load((tmp_path / "a.yaml").read_text())["name"] == "again"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").write_text("kept")
    with pytest.raises(OutputNotWritable):
        write_tuned(tmp_path / "folder", VALUES)
    assert (tmp_path / "folder" / "kept").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("text", ["", "tuned: 1\n", "tuned: {evidence: {}}\n", "[", "\x00", "name: my own spec\n"])
def test_only_what_a_probe_wrote_may_be_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "out.yaml"
    path.write_text(text)
    with pytest.raises(UsageProblem, match="was not written by oomtune"):
        check_output(path, force=False)
    check_output(path, force=True)
    assert path.read_text() == text
    write_tuned(path, VALUES)
    check_output(path, force=False)


@pytest.mark.parametrize("text", [None, "", "a: 1\n", "tuned: {format: 99}\n", "[", "tuned: [1]\n"])
def test_a_file_without_an_answer_says_how_to_get_one(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "model.tuned.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageProblem):
        load_tuned(path)
