"""The files that decide what a trial shows: a change in any of them starts another ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from oomtune.commands.prepare import deciding_files
from oomtune.spec import load_spec
from tests.support.specs import small_spec


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Create the spec's folder and the current folder, each with modules."""
    for name in (
        "spec/models.py",
        "spec/blocks.py",
        "spec/parts/heads.py",
        "spec/pack/__init__.py",
        "spec/pack/a/b.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "here" / "plain" / "deep").mkdir(parents=True)
    (tmp_path / "here" / "plain" / "deep" / "nets.py").touch()
    (tmp_path / "here" / "mine.py").touch()
    (tmp_path / "spec" / "model.keras").touch()
    (tmp_path / "spec" / "notes.txt").touch()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "spec", tmp_path / "here"


BESIDE = {"spec/models.py", "spec/blocks.py", "spec/parts/heads.py", "spec/pack/__init__.py", "spec/pack/a/b.py"}


@pytest.mark.parametrize(
    ("entries", "beside"),
    [
        ({"model": {"builder": "models:build"}}, {"here/mine.py"}),
        ({"model": {"builder": "plain.deep.nets:build"}}, {"here/mine.py", "here/plain/deep/nets.py"}),
        ({"model": {"layers": [{"Bidirectional": {"layer": {"blocks:Cell": {}}}}]}}, {"here/mine.py"}),
        ({"dataset": {"python": "models:data"}}, {"here/mine.py"}),
        ({"model": {"keras_file": "model.keras", "allow_code": True}}, {"here/mine.py", "spec/model.keras"}),
        ({"model": {"train_step": "models:make"}, "training": None}, {"here/mine.py"}),
    ],
)
def test_code_that_a_trial_may_import_decides_in_every_folder_it_is_imported_from(
    folders: tuple[Path, Path], entries: dict[str, Any], beside: set[str]
) -> None:
    assert decided(folders[0], entries) == BESIDE | beside


def test_modules_do_not_decide_if_the_spec_names_no_code(folders: tuple[Path, Path]) -> None:
    assert decided(folders[0], {}) == set()
    assert decided(folders[0], {"model": {"keras_file": "model.keras"}}) == {"spec/model.keras"}
    words = {"layers": [{"Input": {"shape": [1], "dtype": "string"}}, {"StringLookup": {"vocabulary": "notes.txt"}}]}
    assert decided(folders[0], {"model": words}) == {"spec/notes.txt"}


def test_a_change_in_a_module_that_a_builder_imports_is_noticed(folders: tuple[Path, Path]) -> None:
    def digests() -> dict[str, str]:
        (folders[0] / "spec.yaml").write_text(yaml.safe_dump(small_spec(model={"builder": "models:build"})))
        return deciding_files(load_spec(folders[0] / "spec.yaml"))

    before = digests()
    (folders[0] / "blocks.py").write_text("UNITS = 8")
    assert {path for path, digest in digests().items() if before[path] != digest} == {str(folders[0] / "blocks.py")}


def decided(folder: Path, entries: dict[str, Any]) -> set[str]:
    (folder / "spec.yaml").write_text(yaml.safe_dump(small_spec(**entries)))
    files = deciding_files(load_spec(folder / "spec.yaml"))
    return {str(Path(path).relative_to(folder.parent)) for path in files}
