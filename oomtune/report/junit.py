"""A probe as JUnit XML: the verdict is a case, and so is each trial. Only what is broken is an error."""

from __future__ import annotations

from xml.etree import ElementTree

from oomtune.domain import Kind, ProbeResult, TrialError, Verdict
from oomtune.report.escape import xml_text
from oomtune.report.marks import COMMENT
from oomtune.report.model import answer_rows
from oomtune.report.trial_entries import TrialEntry, trial_entries
from oomtune.report.verdict import verdict_words
from oomtune.units import format_bytes

_SUITE = "oomtune.probe"


def junit_page(result: ProbeResult) -> str:
    entries = trial_entries(result)
    cases = [_verdict_case(result, entries), *(_trial_case(entry) for entry in entries)]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": "0",
        "time": _seconds(sum(entry.duration_s for entry in entries)),
    }
    root = ElementTree.Element("testsuites", {"name": "oomtune", **counts})
    stamp = {"timestamp": result.probed_at.rstrip("Z")} if result.probed_at else {}
    suite = ElementTree.SubElement(root, "testsuite", {"name": _SUITE, **counts, **stamp})
    suite.extend(cases)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{COMMENT}\n{text}\n'


def _verdict_case(result: ProbeResult, entries: list[TrialEntry]) -> ElementTree.Element:
    """Passes when there is an answer to train with: confirmed, or the best when a limit that was set stopped it."""
    words = verdict_words(result)
    case = _case(result.spec.name, sum(entry.duration_s for entry in entries))
    details = [words.sentence, *(f"{name}: {value}" for name, value in answer_rows(result))]
    if result.verdict is Verdict.FAILED:
        _ended(case, "error", words.sentence, result.problem)
    elif not words.good:
        _ended(case, "failure", words.sentence, result.problem)
    ElementTree.SubElement(case, "system-out").text = xml_text("\n".join(details))
    return case


def _trial_case(entry: TrialEntry) -> ElementTree.Element:
    """A trial that did not fit has found out what it was run for: it passes."""
    run = entry.run
    case = _case(f"trial {run.trial_number} {run.purpose}: batch {entry.batch}, {run.candidate.lane}", entry.duration_s)
    details = [f"{entry.ending.sign} {entry.ended}"]
    if run.peak_bytes is not None:
        details.append(f"peak {run.peak_bytes} bytes, {format_bytes(run.peak_bytes)}")
    if run.step_ms is not None:
        details.append(f"step {run.step_ms} ms")
    if entry.error is not None and entry.ending.key == Kind.CRASH.value:
        _ended(case, "error", entry.error.message, entry.error)
    elif entry.error is not None:
        details.append(entry.error.message)
    ElementTree.SubElement(case, "system-out").text = xml_text("\n".join(details))
    return case


def _case(name: str, duration_s: float) -> ElementTree.Element:
    return ElementTree.Element("testcase", {"classname": _SUITE, "name": xml_text(name), "time": _seconds(duration_s)})


def _ended(case: ElementTree.Element, kind: str, message: str, error: TrialError | None) -> None:
    ending = ElementTree.SubElement(case, kind, {"message": xml_text(message), "type": error.code if error else kind})
    if error is not None:
        ending.text = xml_text("\n".join(filter(None, (error.traceback, error.message, error.hint))))


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.3f}"
