"""The files that a check leaves for a pipeline: where they may be written, and what they name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from oomtune.commands.report import RENDERINGS, CheckFiles
from oomtune.domain import CheckVerdict
from oomtune.errors import OutputNotWritable, UsageProblem
from oomtune.report.check import check_report
from tests.support.checks import RESULT

FITS = dataclasses.replace(RESULT, verdict=CheckVerdict.FITS, expected_peak_bytes=900)


@pytest.mark.parametrize("variable", ["GITHUB_WORKSPACE", "CI_PROJECT_DIR"])
def test_pipelines_get_the_path_from_the_root_of_the_checkout(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI services know files by that path, whichever folder the step ran in."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "models").mkdir()
    places = []
    for folder, path in (
        (tmp_path, "models/m.yaml"),
        (tmp_path / "models", "m.yaml"),
        (Path("/"), f"{tmp_path}/models/m.yaml"),
    ):
        monkeypatch.chdir(folder)
        files = CheckFiles(code_quality=tmp_path / "q.json")
        marked = files.write(check_report(dataclasses.replace(RESULT, path=path))) or ""
        (issue,) = json.loads((tmp_path / "q.json").read_text())
        places.append((marked.partition("file=")[2].partition(",")[0], issue["location"]["path"], issue["fingerprint"]))
    github_paths, gitlab_paths, fingerprints = map(set, zip(*places, strict=True))
    assert (github_paths if variable == "GITHUB_WORKSPACE" else gitlab_paths) == {"models/m.yaml"}
    assert (len(fingerprints) == 1) == (variable == "CI_PROJECT_DIR")
    monkeypatch.setenv(variable, str(tmp_path / "models"))
    marked = files.write(check_report(dataclasses.replace(RESULT, path="/elsewhere/m.yaml"))) or ""
    assert "file=/elsewhere/m.yaml," in marked


def test_only_files_that_oomtune_wrote_are_overwritten(tmp_path: Path) -> None:
    theirs, ours, quality = tmp_path / "README.xml", tmp_path / "ours.xml", tmp_path / "q.json"
    theirs.write_text("<mine>about oomtune</mine>")
    quality.write_text('[{"check_name": "ruff", "description": "about oomtune"}]')
    for files in (CheckFiles(junit=theirs), CheckFiles(code_quality=quality), CheckFiles(code_quality=theirs)):
        with pytest.raises(UsageProblem, match="was not written by oomtune"):
            files.check(tmp_path / "m.yaml", force=False)
        files.check(tmp_path / "m.yaml", force=True)
    quality.unlink()
    files = CheckFiles(junit=ours, code_quality=quality, summary=tmp_path / "s.md")
    (tmp_path / "s.md").write_text("before\n")
    for result in (RESULT, FITS, RESULT):
        files.check(tmp_path / "m.yaml", force=False)
        files.write(check_report(result))
    assert (tmp_path / "s.md").read_text().startswith("before\n")
    assert (tmp_path / "s.md").read_text().count("###") == 3
    assert RENDERINGS[".xml"].is_ours(ours)


def test_unwritable_files_are_refused_before_the_check_runs(tmp_path: Path) -> None:
    checked, once = tmp_path / "m.tuned.yaml", tmp_path / "a.xml"
    checked.write_text("name: oomtune\n")
    with pytest.raises(UsageProblem, match="is the file that is checked"):
        CheckFiles(summary=checked).check(checked, force=True)
    with pytest.raises(UsageProblem, match="also what --junit writes"):
        CheckFiles(junit=once, code_quality=tmp_path / "." / "a.xml").check(checked, force=False)
    for files in (CheckFiles(junit=tmp_path / "no" / "j.xml"), CheckFiles(summary=tmp_path / "no" / "s.md")):
        with pytest.raises(OutputNotWritable):
            files.check(checked, force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["m.tuned.yaml"]
