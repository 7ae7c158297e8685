"""A probe or a check as JUnit XML. Lack of memory is a failure, any other problem an error."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from oomtune.domain import Kind, ProbeResult, TrialError, Verdict
from oomtune.report import COMMENT_MARK
from oomtune.report.answer import answer_rows, verdict_words
from oomtune.report.check import CheckReport
from oomtune.report.trial_rows import TrialRow, trial_rows
from oomtune.units import format_bytes

_PROBE, _CHECK = "oomtune.probe", "oomtune.check"
# XML 1.0 can't hold these even when escaped: control characters, lone surrogates and two non-characters.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str) -> str:
    """Replace the characters that XML can't hold."""
    return _NOT_XML.sub("\ufffd", text)


def probe_junit(result: ProbeResult) -> str:
    """Return a suite with a case for the verdict and one for each trial."""
    rows = trial_rows(result)
    cases = [_verdict_case(result, rows), *(_trial_case(row) for row in rows)]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": "0",
        "time": _seconds(sum(row.duration_s for row in rows)),
    }
    root = ElementTree.Element("testsuites", {"name": "oomtune", **counts})
    timestamp = {"timestamp": result.probed_at.rstrip("Z")} if result.probed_at else {}
    suite = ElementTree.SubElement(root, "testsuite", {"name": _PROBE, **counts, **timestamp})
    suite.extend(cases)
    ElementTree.indent(root)
    return _document(root)


def check_junit(report: CheckReport) -> str:
    """Return a suite with one case."""
    counts = {
        "tests": "1",
        "failures": str(int(report.problem_kind == "failure")),
        "errors": str(int(report.problem_kind == "error")),
        "time": _seconds(report.duration_s),
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": _CHECK, **counts})
    case = ElementTree.SubElement(suite, "testcase", classname=_CHECK, name=xml_text(report.name), time=counts["time"])
    if report.problem_kind is not None:
        message = xml_text(report.sentence)
        problem = ElementTree.SubElement(case, report.problem_kind, message=message, type=report.code)
        problem.text = xml_text(_check_details(report))
    else:
        ElementTree.SubElement(case, "system-out").text = xml_text(_check_details(report))
    return _document(root)


def _check_details(report: CheckReport) -> str:
    lines = [report.sentence, *(f"{name}: {value}" for name, value in report.rows)]
    lines += [report.edit_notice, *report.spec_diff] if report.spec_diff else []
    return "\n".join(filter(None, [*lines, report.traceback, report.problem, report.hint]))


def _verdict_case(result: ProbeResult, rows: list[TrialRow]) -> ElementTree.Element:
    """Return the case of the verdict. It passes if there is an answer to train with, confirmed or not."""
    words = verdict_words(result)
    case = _case(result.spec.name, sum(row.duration_s for row in rows))
    details = [words.sentence, *(f"{name}: {value}" for name, value in answer_rows(result))]
    if result.verdict is Verdict.FAILED:
        _add_problem(case, "error", words.sentence, result.problem)
    elif not words.is_good:
        _add_problem(case, "failure", words.sentence, result.problem)
    ElementTree.SubElement(case, "system-out").text = xml_text("\n".join(details))
    return case


def _trial_case(row: TrialRow) -> ElementTree.Element:
    """Return the case of a trial. A trial that does not fit passes too: finding that out is its job."""
    run = row.run
    case = _case(f"trial {row.number} {row.purpose}: batch {row.batch}, {run.candidate.lane}", row.duration_s)
    details = [f"{row.ending.sign} {row.ended}"]
    if run.peak_bytes is not None:
        details.append(f"peak {run.peak_bytes} bytes, {format_bytes(run.peak_bytes)}")
    if run.step_ms is not None:
        details.append(f"step {run.step_ms} ms")
    if row.error is not None and row.ending.key == Kind.CRASH.value:
        _add_problem(case, "error", row.error.message, row.error)
    elif row.error is not None:
        details.append(row.error.message)
    ElementTree.SubElement(case, "system-out").text = xml_text("\n".join(details))
    return case


def _case(name: str, duration_s: float) -> ElementTree.Element:
    return ElementTree.Element("testcase", {"classname": _PROBE, "name": xml_text(name), "time": _seconds(duration_s)})


def _add_problem(case: ElementTree.Element, kind: str, message: str, error: TrialError | None) -> None:
    problem = ElementTree.SubElement(case, kind, {"message": xml_text(message), "type": error.code if error else kind})
    if error is not None:
        problem.text = xml_text("\n".join(filter(None, (error.traceback, error.message, error.hint))))


def _document(root: ElementTree.Element) -> str:
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{COMMENT_MARK}\n{text}\n'


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.3f}"
