"""The result of a check in words, and in the formats of CI: Markdown, JUnit, GitHub and GitLab."""

from __future__ import annotations

import dataclasses
import json
from xml.etree import ElementTree

import pytest

from oomtune.domain import CheckVerdict, FailureKind, Kind, Stage, TrialError
from oomtune.errors import NoSuchDevice, Problem, SpecProblem, TrialCrashed
from oomtune.report.check import certainty, check_message, check_report, check_rows, failed_check_report
from oomtune.report.json_document import check_document
from oomtune.report.junit import check_junit
from oomtune.report.markdown import check_markdown
from oomtune.report.pipelines import github_annotation, gitlab_code_quality
from tests.support.checks import FITTED, RESULT
from tests.support.outcomes import failed
from tests.support.specs import CPU

FITS = dataclasses.replace(RESULT, verdict=CheckVerdict.FITS, expected_peak_bytes=900)


@pytest.mark.parametrize(
    ("where", "line"),
    [("models/a,b.yaml:12", 12), ("spec.yaml:3", None), ("--set", None), ("models/a,b.yaml", None)],
)
def test_only_a_line_of_the_checked_file_is_annotated(where: str, line: int | None) -> None:
    assert check_report(dataclasses.replace(RESULT, where=where)).line == line


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
def test_every_verdict_has_an_exit_code_a_sentence_and_a_junit_case(verdict: str, code: int) -> None:
    result = dataclasses.replace(RESULT, verdict=CheckVerdict(verdict))
    report = check_report(result)
    assert result.exit_code == code == check_document(result)["exit_code"]
    assert report.sentence == check_document(result)["message"]
    assert bool(report.hint) == (code in (4, 5))
    suite = ElementTree.fromstring(check_junit(report))
    assert int(suite.get("failures", "")) == (code == 4)
    assert int(suite.get("errors", "")) == (code in (5, 6))
    assert (github_annotation(report) is None) == (code == 0) == (json.loads(gitlab_code_quality(report)) == [])
    assert ("❌" in check_markdown(report)) == (code != 0)


def test_hostile_names_and_messages_stay_text_in_every_format() -> None:
    error = TrialError(code="raised", message="bad \x00 </failure> `x`\n| % ::error::")
    result = dataclasses.replace(
        RESULT,
        name=f"{RESULT.name} ~~~ \ufffe",
        problem=error,
        verdict=CheckVerdict.DOES_NOT_FIT,
        spec_diff=("-a: ```", "+b: ~~~"),
    )
    report = check_report(result)
    assert "<script>" not in check_markdown(report)
    assert "\\| \\*x\\* \\~\\~\\~" in check_markdown(report)
    assert "````diff" in check_markdown(report)
    case = ElementTree.fromstring(check_junit(report)).find("testsuite/testcase")
    assert case is not None
    assert case.get("name") == f"{RESULT.name} ~~~ \ufffd"
    annotation = github_annotation(report) or ""
    assert "\n" not in annotation
    assert annotation.startswith("::error file=models/a%2Cb.yaml,line=12,title=oomtune check%3A <script>")


def test_every_format_shows_the_same_growth() -> None:
    rows = dict(check_rows(RESULT))
    assert rows["when it was tuned"] == "600 B: +50.0%, 5% allowed"
    for text in (check_junit(check_report(RESULT)), check_markdown(check_report(RESULT))):
        assert "+50.0%" in text
    assert check_document(RESULT)["memory"]["growth"] == pytest.approx(0.5)
    assert "uses 50.0% more memory" in check_message(RESULT).sentence
    strict = dict(check_rows(dataclasses.replace(RESULT, tolerance=0.005)))
    assert strict["when it was tuned"].endswith("0.5% allowed")


def test_the_annotation_names_what_changed() -> None:
    report = check_report(dataclasses.replace(RESULT, spec_diff=("+name: other",)))
    changed = "changed: keras: 3.1 then, 3.2 now; the spec that it was tuned from"
    assert changed in (github_annotation(report) or "")
    assert changed in json.loads(gitlab_code_quality(report))[0]["description"]
    assert "; this file" in (
        github_annotation(check_report(dataclasses.replace(RESULT, spec_diff=("+a",), file_edited=True))) or ""
    )


def test_the_annotation_has_the_first_line_of_the_error_and_junit_the_traceback() -> None:
    error = TrialError(code="raised", message="ValueError: no such column\nand more", traceback="Traceback: ...\n")
    report = check_report(dataclasses.replace(RESULT, verdict=CheckVerdict.BROKEN, problem=error))
    for text in ((github_annotation(report) or ""), json.loads(gitlab_code_quality(report))[0]["description"]):
        assert "ValueError: no such column" in text
        assert "and more" not in text
    assert "Traceback: ..." in check_junit(report)
    assert "Traceback: ..." in check_markdown(report)
    crash = failed_check_report("m.yaml", TrialCrashed("no", traceback="Traceback: its own"))
    assert "Traceback: its own" in check_junit(crash)


@pytest.mark.parametrize(
    ("verdict", "peak_bytes", "fact"),
    [
        ("does_not_fit", None, "limit: 1000 B, budget: 950 B"),
        ("does_not_fit", 900, "peak memory: 900 B of 1000 B (90%)"),
        ("uses_more", 900, "when it was tuned: 600 B: +50.0%25, 5%25 allowed"),
    ],
)
def test_the_annotation_of_a_misfit_has_its_peak_or_the_limit(verdict: str, peak_bytes: int | None, fact: str) -> None:
    outcome = failed(peak_bytes=peak_bytes, duration_s=3.0)
    error = TrialError(code="device_oom", message="OOM when allocating")
    result = dataclasses.replace(RESULT, verdict=CheckVerdict(verdict), outcome=outcome, problem=error)
    annotation = github_annotation(check_report(result)) or ""
    assert fact in annotation.replace("(90%25)", "(90%)")
    assert "OOM when allocating" in annotation


def test_a_check_that_could_not_run_is_an_error_on_the_faulty_line() -> None:
    problem = Problem(where="m.yaml:7", key="search.batch_size", message="expected a number")
    for error, line in ((SpecProblem([problem]), 7), (NoSuchDevice("no GPU is visible", hint="look"), None)):
        report = failed_check_report("m.yaml", error)
        suite = ElementTree.fromstring(check_junit(report))
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "1")
        assert error.message in check_markdown(report).replace("\\_", "_")
        assert f"file=m.yaml{'' if line is None else ',line=7'},title" in (github_annotation(report) or "")
        assert json.loads(gitlab_code_quality(report))[0]["check_name"] == f"oomtune-{error.code}"


@pytest.mark.parametrize(("peak", "word"), [(500, "sure"), (700, "likely"), (900, "not sure")])
def test_certainty_depends_on_how_much_room_the_peak_leaves_on_the_card(peak: int, word: str) -> None:
    card = dataclasses.replace(CPU, stands_in_for="Tesla T4")
    result = dataclasses.replace(FITS, device=card, outcome=dataclasses.replace(FITTED, peak_bytes=peak))
    assert certainty(result).startswith(word)


@pytest.mark.parametrize(
    ("kind", "word"), [(Kind.DEVICE_OOM, "sure"), (Kind.TIMEOUT, "not known"), (Kind.CRASH, "not known")]
)
def test_only_an_out_of_memory_error_on_the_cpu_gives_certainty_about_the_card(kind: FailureKind, word: str) -> None:
    card = dataclasses.replace(CPU, stands_in_for="Tesla T4")
    outcome = failed(kind, stage=Stage.DONE)
    result = dataclasses.replace(FITS, verdict=CheckVerdict.DOES_NOT_FIT, device=card, outcome=outcome, was_tuned=True)
    assert certainty(result).startswith(word)
    assert ("no longer fits" in check_message(result).sentence) == (kind is not Kind.TIMEOUT)
