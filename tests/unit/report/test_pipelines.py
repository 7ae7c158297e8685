"""What a check says to pipelines: escaped for each of them, in files that are written over only where they are ours."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from oomtune.commands.report import RENDERINGS, CheckFiles
from oomtune.domain import Budget, Candidate, Change, CheckResult, CheckVerdict, Kind, Outcome, Stage, TrialError
from oomtune.errors import NoSuchDevice, OutputNotWritable, Problem, SpecProblem, TrialCrashed, UsageProblem
from oomtune.report.check import check_document, rows
from oomtune.report.check_words import certainty, words
from oomtune.report.pipelines import annotation, code_quality, junit, markdown, told_of, told_of_error
from tests.support.specs import CPU

FITTED = Outcome(kind=Kind.FITS, stage=Stage.DONE, peak_bytes=900, step_ms=2.0, duration_s=3.0)
RESULT = CheckResult(
    verdict=CheckVerdict.USES_MORE,
    path="models/a,b.yaml",
    where="models/a,b.yaml:12",
    name="<script>alert(1)</script> | *x*",
    candidate=Candidate(batch_size=8),
    device=CPU,
    budget=Budget(limit_bytes=1_000),
    tolerance=0.05,
    outcome=FITTED,
    expected_peak_bytes=600,
    changes=(Change(what="keras", before="3.1", now="3.2"),),
)
FITS = dataclasses.replace(RESULT, verdict=CheckVerdict.FITS, expected_peak_bytes=900)


@pytest.mark.parametrize(
    ("where", "line"),
    [("models/a,b.yaml:12", 12), ("spec.yaml:3", None), ("--set", None), ("models/a,b.yaml", None)],
)
def test_a_line_is_one_of_the_file_that_is_marked(where: str, line: int | None) -> None:
    assert told_of(dataclasses.replace(RESULT, where=where)).line == line


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        ("fits", 0),
        ("updated", 0),
        ("uses_more", 4),
        ("does_not_fit", 4),
        ("broken", 6),
        ("wrong_device", 5),
        ("undecided", 5),
    ],
)
def test_every_verdict_has_its_exit_code_its_sentence_and_a_case_in_junit(verdict: str, code: int) -> None:
    result = dataclasses.replace(RESULT, verdict=CheckVerdict(verdict))
    told = told_of(result)
    assert result.exit_code == code == check_document(result)["exit_code"]
    assert told.sentence == check_document(result)["message"]
    assert bool(told.hint) == (code in (4, 5))
    suite = ElementTree.fromstring(junit(told))
    assert int(suite.get("failures", "")) == (code == 4)
    assert int(suite.get("errors", "")) == (code in (5, 6))
    assert (annotation(told) is None) == (code == 0) == (json.loads(code_quality(told)) == [])
    assert ("❌" in markdown(told)) == (code != 0)


def test_names_and_messages_stay_text_wherever_they_are_shown() -> None:
    error = TrialError(code="raised", message="bad \x00 </failure> `x`\n| % ::error::")
    result = dataclasses.replace(
        RESULT,
        name=f"{RESULT.name} ~~~ \ufffe",
        problem=error,
        verdict=CheckVerdict.DOES_NOT_FIT,
        spec_diff=("-a: ```", "+b: ~~~"),
    )
    told = told_of(result)
    assert "<script>" not in markdown(told)
    assert "\\| \\*x\\* \\~\\~\\~" in markdown(told)
    assert "````diff" in markdown(told)
    case = ElementTree.fromstring(junit(told)).find("testsuite/testcase")
    assert case is not None
    assert case.get("name") == f"{RESULT.name} ~~~ \ufffd"
    said = annotation(told) or ""
    assert "\n" not in said
    assert said.startswith("::error file=models/a%2Cb.yaml,line=12,title=oomtune check%3A <script>")


def test_a_number_is_the_same_in_every_way_of_showing_it() -> None:
    shown = dict(rows(RESULT))
    assert shown["when it was tuned"] == "600 B: +50.0%, 5% allowed"
    for text in (junit(told_of(RESULT)), markdown(told_of(RESULT))):
        assert "+50.0%" in text
    assert check_document(RESULT)["memory"]["growth"] == pytest.approx(0.5)
    assert "uses 50.0% more memory" in words(RESULT).sentence
    strict = dict(rows(dataclasses.replace(RESULT, tolerance=0.005)))
    assert strict["when it was tuned"].endswith("0.5% allowed")


def test_what_changed_is_named_where_the_failure_is_marked() -> None:
    told = told_of(dataclasses.replace(RESULT, spec_diff=("+name: other",)))
    changed = "changed: keras: 3.1 then, 3.2 now; the spec that it was tuned from"
    assert changed in (annotation(told) or "")
    assert changed in json.loads(code_quality(told))[0]["description"]
    assert "; this file" in (
        annotation(told_of(dataclasses.replace(RESULT, spec_diff=("+a",), file_edited=True))) or ""
    )


def test_what_is_broken_is_said_where_the_failure_is_marked_and_its_traceback_in_junit() -> None:
    error = TrialError(code="raised", message="ValueError: no such column\nand more", traceback="Traceback: ...\n")
    told = told_of(dataclasses.replace(RESULT, verdict=CheckVerdict.BROKEN, problem=error))
    for text in ((annotation(told) or ""), json.loads(code_quality(told))[0]["description"]):
        assert "ValueError: no such column" in text
        assert "and more" not in text
    assert "Traceback: ..." in junit(told)
    assert "Traceback: ..." in markdown(told)
    crash = told_of_error("m.yaml", TrialCrashed("no", traceback="Traceback: its own"))
    assert "Traceback: its own" in junit(crash)


@pytest.mark.parametrize(
    ("verdict", "peak", "said"),
    [
        ("does_not_fit", None, "limit: 1000 B, of which 950 B may be used"),
        ("does_not_fit", 900, "peak memory: 900 B of 1000 B (90%)"),
        ("uses_more", 900, "when it was tuned: 600 B: +50.0%25, 5%25 allowed"),
    ],
)
def test_what_does_not_fit_is_marked_with_its_peak_and_the_limit(verdict: str, peak: int | None, said: str) -> None:
    outcome = dataclasses.replace(FITTED, kind=Kind.DEVICE_OOM, stage=Stage.TRAIN, peak_bytes=peak)
    error = TrialError(code="device_oom", message="OOM when allocating")
    result = dataclasses.replace(RESULT, verdict=CheckVerdict(verdict), outcome=outcome, problem=error)
    marked = annotation(told_of(result)) or ""
    assert said in marked.replace("(90%25)", "(90%)")
    assert "OOM when allocating" in marked


@pytest.mark.parametrize("variable", ["GITHUB_WORKSPACE", "CI_PROJECT_DIR"])
def test_a_file_is_named_from_the_root_of_the_checkout(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is how the service knows it, whichever folder the step ran in."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "models").mkdir()
    seen = []
    for folder, path in (
        (tmp_path, "models/m.yaml"),
        (tmp_path / "models", "m.yaml"),
        (Path("/"), f"{tmp_path}/models/m.yaml"),
    ):
        monkeypatch.chdir(folder)
        files = CheckFiles(code_quality=tmp_path / "q.json")
        marked = files.write(told_of(dataclasses.replace(RESULT, path=path))) or ""
        (issue,) = json.loads((tmp_path / "q.json").read_text())
        seen.append((marked.partition("file=")[2].partition(",")[0], issue["location"]["path"], issue["fingerprint"]))
    of_github, of_gitlab, fingerprints = map(set, zip(*seen, strict=True))
    assert (of_github if variable == "GITHUB_WORKSPACE" else of_gitlab) == {"models/m.yaml"}
    assert (len(fingerprints) == 1) == (variable == "CI_PROJECT_DIR")
    monkeypatch.setenv(variable, str(tmp_path / "models"))
    marked = files.write(told_of(dataclasses.replace(RESULT, path="/elsewhere/m.yaml"))) or ""
    assert "file=/elsewhere/m.yaml," in marked


def test_a_check_that_could_not_be_made_is_an_error_with_the_line_that_is_wrong() -> None:
    problem = Problem(where="m.yaml:7", key="search.batch_size", message="expected a number")
    for error, line in ((SpecProblem([problem]), 7), (NoSuchDevice("no GPU is visible", hint="look"), None)):
        told = told_of_error("m.yaml", error)
        suite = ElementTree.fromstring(junit(told))
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "1")
        assert error.message in markdown(told).replace("\\_", "_")
        assert f"file=m.yaml{'' if line is None else ',line=7'},title" in (annotation(told) or "")
        assert json.loads(code_quality(told))[0]["check_name"] == f"oomtune-{error.code}"


def test_only_what_a_check_or_a_probe_wrote_is_written_over(tmp_path: Path) -> None:
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
        files.write(told_of(result))
    assert (tmp_path / "s.md").read_text().startswith("before\n")
    assert (tmp_path / "s.md").read_text().count("###") == 3
    assert RENDERINGS[".xml"].is_ours(ours)


def test_files_that_can_not_be_written_are_known_before_the_check_runs(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("peak", "word"), [(500, "sure"), (700, "likely"), (900, "not sure")])
def test_how_sure_a_stand_in_is_depends_on_the_room_it_leaves(peak: int, word: str) -> None:
    card = dataclasses.replace(CPU, stands_in_for="Tesla T4")
    result = dataclasses.replace(FITS, device=card, outcome=dataclasses.replace(FITTED, peak_bytes=peak))
    assert certainty(result).startswith(word)


@pytest.mark.parametrize(
    ("kind", "word"), [(Kind.DEVICE_OOM, "sure"), (Kind.TIMEOUT, "not known"), (Kind.CRASH, "not known")]
)
def test_only_memory_that_ran_out_here_says_something_of_the_card(kind: Kind, word: str) -> None:
    card = dataclasses.replace(CPU, stands_in_for="Tesla T4")
    outcome = dataclasses.replace(FITTED, kind=kind, peak_bytes=None)
    result = dataclasses.replace(FITS, verdict=CheckVerdict.DOES_NOT_FIT, device=card, outcome=outcome, was_tuned=True)
    assert certainty(result).startswith(word)
    assert ("no longer fits" in words(result).sentence) == (kind is not Kind.TIMEOUT)
