from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from oomtune import load_tuned
from oomtune.errors import OutputNotWritable, UsageProblem
from oomtune.keras import compile_args
from oomtune.spec import load_spec
from oomtune.storage.tuned import check_output, origin_from, tuned_text, write_tuned
from tests.support.specs import small_spec

VALUES: dict[str, Any] = {
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


def test_a_written_answer_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "model.tuned.yaml"
    write_tuned(path, tuned_text(VALUES))
    tuned = load_tuned(path)
    assert (tuned.batch_size, tuned.sequence_length, tuned.precision) == (96, 256, "mixed_bfloat16")
    assert (tuned.gradient_accumulation_steps, tuned.effective_batch_size) == (3, 288)
    assert (tuned.device_kind, tuned.memory_limit_bytes, tuned.confirmed) == ("cpu", 1024**3, True)
    assert tuned.training["optimizer"]["config"]["learning_rate"] == 1e-5
    assert tuned.environment == {"A": "1"}


def test_a_compiled_model_gets_no_other_optimizer(tmp_path: Path) -> None:
    path = tmp_path / "model.tuned.yaml"
    write_tuned(path, tuned_text(VALUES | {"training": {}}))
    with pytest.raises(UsageProblem, match="the trials used the model as it was compiled"):
        compile_args(load_tuned(path))


def test_nothing_but_the_file_is_left_in_the_folder(tmp_path: Path) -> None:
    write_tuned(tmp_path / "a.yaml", tuned_text(VALUES))
    write_tuned(tmp_path / "a.yaml", tuned_text({**VALUES, "name": "again"}))
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]
    assert yaml.safe_load((tmp_path / "a.yaml").read_text())["name"] == "again"


def test_a_failed_write_leaves_the_folder_unchanged(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").write_text("kept")
    with pytest.raises(OutputNotWritable):
        write_tuned(tmp_path / "folder", tuned_text(VALUES))
    assert (tmp_path / "folder" / "kept").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("text", ["", "tuned: 1\n", "tuned: {evidence: {}}\n", "[", "\x00", "name: my own spec\n"])
def test_only_files_that_a_probe_wrote_are_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "out.yaml"
    path.write_text(text)
    with pytest.raises(UsageProblem, match="was not written by oomtune"):
        check_output(path, force=False)
    check_output(path, force=True)
    assert path.read_text() == text
    write_tuned(path, tuned_text(VALUES))
    check_output(path, force=False)


@pytest.mark.parametrize("text", [None, "", "a: 1\n", "tuned: {format: 99}\n", "[", "tuned: [1]\n"])
def test_loading_a_file_without_an_answer_is_bad_usage(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "model.tuned.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageProblem):
        load_tuned(path)


def test_unpaired_buckets_are_reported_with_file_and_key(tmp_path: Path) -> None:
    path = tmp_path / "model.tuned.yaml"
    buckets = {"bucket_boundaries": [8, 16], "bucket_batch_sizes": [4]}
    write_tuned(path, tuned_text({**VALUES, "tuned": {**VALUES["tuned"], **buckets}}))
    with pytest.raises(UsageProblem, match=r"model.tuned.yaml: tuned.bucket_batch_sizes: expected .* 2 .* found 1"):
        load_tuned(path)


def test_a_tuned_config_names_its_spec_and_the_entries_that_flags_set(tmp_path: Path) -> None:
    spec, output = tmp_path / "net.yml", tmp_path / "out" / "other.yaml"
    spec.write_text(yaml.safe_dump(small_spec()))
    output.parent.mkdir()
    loaded = load_spec(spec, settings=["search.resolution=0.1"], flags={"device.like": ("--like", "T4")})
    assert loaded.overridden == ("search.resolution", "device.like", "device.memory_limit")
    origin = origin_from(output, loaded.source, loaded.overridden)
    assert origin["spec"] == "../net.yml"
    tuned = {**VALUES["tuned"], "evidence": {**VALUES["tuned"]["evidence"], **origin}, "folder": ".."}
    write_tuned(output, tuned_text({**loaded.values, "tuned": tuned}))
    again = load_spec(output, settings=["trial.steps=2"])
    assert again.source == spec
    assert again.overridden == (*loaded.overridden, "trial.steps")
    assert origin_from(output, load_spec(small_spec()).source, ()) == {}
