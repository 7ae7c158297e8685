"""What a check found, for those who read pipelines: Markdown, JUnit, GitHub annotations, GitLab code quality."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal
from xml.etree import ElementTree

from oomtune.domain import CheckResult, CheckVerdict
from oomtune.errors import OomtuneError, SpecProblem, TrialCrashed
from oomtune.report.check import rows
from oomtune.report.check_words import what_was_edited, words
from oomtune.report.escape import markdown_block, markdown_text, xml_text
from oomtune.report.marks import COMMENT
from oomtune.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A check, or the error there was instead of one, as all of these readers are told it."""

    path: str
    name: str
    word: str
    """The verdict, or what kind of error it was."""
    sentence: str
    hint: str = ""
    ending: Literal["", "failure", "error"] = ""
    """Empty when all is well; a failure is about memory, an error about anything else."""
    grave: bool = True
    line: int | None = None
    """Of the file at `path`."""
    rows: tuple[tuple[str, str], ...] = ()
    short: tuple[str, ...] = ()
    """What is broken or does not fit, for those who see little else: the error's first line, the peak, the limit."""
    changed: tuple[str, ...] = ()
    edited: str = ""
    """What is said above the lines of `spec_diff`."""
    spec_diff: tuple[str, ...] = ()
    problem: str = ""
    traceback: str = ""
    duration_s: float = 0.0


def told_of(result: CheckResult) -> Told:
    said = words(result)
    edited = "this file" if result.file_edited else "the spec that it was tuned from"
    return Told(
        path=result.path,
        name=result.name,
        word=result.verdict.value,
        sentence=said.sentence,
        hint=said.hint,
        ending="" if result.exit_code == 0 else "failure" if result.exit_code == 4 else "error",
        grave=result.verdict is not CheckVerdict.USES_MORE,
        line=_line(result.where, result.path),
        rows=tuple(rows(result)),
        short=_short(result),
        changed=(*map(str, result.changes), *((edited,) if result.spec_diff else ())),
        edited=what_was_edited(result),
        spec_diff=result.spec_diff,
        problem=result.problem.message if result.problem else "",
        traceback=result.problem.traceback if result.problem else "",
        duration_s=result.outcome.duration_s if result.outcome else 0.0,
    )


def _short(result: CheckResult) -> tuple[str, ...]:
    if result.exit_code == 0:
        return ()
    said = result.problem.message.partition("\n")[0] if result.problem else ""
    in_it = result.outcome is not None and result.outcome.over_headroom  # the error has both figures then
    is_memory = result.verdict in (CheckVerdict.USES_MORE, CheckVerdict.DOES_NOT_FIT, CheckVerdict.UNDECIDED)
    if not is_memory or in_it:
        return tuple(filter(None, (said,)))
    shown = dict(rows(result))
    budget, limit = (format_bytes(size) for size in (result.budget.budget_bytes, result.budget.limit_bytes))
    figures = [f"{name}: {shown[name]}" for name in ("peak memory", "when it was tuned") if name in shown]
    room = "" if "peak memory" in shown else f"limit: {limit}, of which {budget} may be used"
    return tuple(filter(None, (said, *figures, room)))


def told_of_error(path: str, error: OomtuneError) -> Told:
    """A check that never came to a verdict is one that failed: the pipeline is to show why."""
    where = error.problems[0].where if isinstance(error, SpecProblem) else error.where
    return Told(
        path=path,
        name=PurePath(path).name,
        word=error.code,
        sentence=str(error),
        hint=error.hint,
        ending="error",
        traceback=error.traceback if isinstance(error, TrialCrashed) else "",
        line=_line(where, path),
    )


def _line(where: str, path: str) -> int | None:
    """The line of this file; None where something else is to blame: another file, or a flag."""
    number = where.removeprefix(f"{path}:")
    return int(number) if number != where and number.isdigit() else None


def markdown(told: Told) -> str:
    """A section for a job's summary."""
    lines = [
        f"### {'❌' if told.ending else '✅'} oomtune: {markdown_text(told.name)}",
        "",
        markdown_text(told.sentence),
    ]
    if told.rows:
        lines += ["", "| | |", "|---|---|"]
        lines += [f"| {markdown_text(name)} | {markdown_text(value)} |" for name, value in told.rows]
    if told.spec_diff:
        lines += ["", told.edited, "", *markdown_block("\n".join(told.spec_diff), "diff")]
    if told.problem:
        lines += ["", markdown_text(told.problem)]
    if told.traceback:
        lines += ["", *markdown_block(told.traceback, "text")]
    if told.hint:
        lines += ["", f"Next: {markdown_text(told.hint)}"]
    return "\n".join(lines) + "\n"


def junit(told: Told) -> str:
    """One suite with one case."""
    counts = {
        "tests": "1",
        "failures": str(int(told.ending == "failure")),
        "errors": str(int(told.ending == "error")),
        "time": f"{told.duration_s:.3f}",
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "oomtune.check", **counts})
    case = ElementTree.SubElement(
        suite, "testcase", classname="oomtune.check", name=xml_text(told.name), time=counts["time"]
    )
    if told.ending:
        ending = ElementTree.SubElement(case, told.ending, message=xml_text(told.sentence), type=told.word)
        ending.text = xml_text(_details(told))
    else:
        ElementTree.SubElement(case, "system-out").text = xml_text(_details(told))
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{COMMENT}\n{text}\n'


def _details(told: Told) -> str:
    lines = [told.sentence, *(f"{name}: {value}" for name, value in told.rows)]
    lines += [told.edited, *told.spec_diff] if told.spec_diff else []
    return "\n".join(filter(None, [*lines, told.traceback, told.problem, told.hint]))


def annotation(told: Told) -> str | None:
    """A workflow command that shows the failure on the spec's line in GitHub; None when there is none."""
    if not told.ending:
        return None
    place = f"file={_property(told.path)}"
    place += "" if told.line is None else f",line={told.line}"
    message = _escaped("\n".join(_in_short(told)))
    return f"::error {place},title={_property(f'oomtune check: {told.name}')}::{message}"


def _in_short(told: Told) -> list[str]:
    changed = f"changed: {'; '.join(told.changed)}" if told.changed else ""
    return list(filter(None, [told.sentence, *told.short, changed, told.hint]))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


_CHECK_NAMES = "oomtune-"


def code_quality(told: Told) -> str:
    """GitLab's code quality report: a list with the failure, or an empty one."""
    if not told.ending:
        return "[]\n"
    issue = {
        "description": "; ".join(_in_short(told)),
        "check_name": f"{_CHECK_NAMES}{told.word}",
        "fingerprint": hashlib.sha256(f"{told.path}\0{told.word}".encode()).hexdigest(),
        "severity": "major" if told.grave else "minor",
        "location": {"path": PurePath(told.path).as_posix(), "lines": {"begin": told.line or 1}},
    }
    return json.dumps([issue], indent=2) + "\n"


def is_code_quality(text: str) -> bool:
    """Is this a report of ours? One without any issue may be anybody's, and is no loss."""
    try:
        issues = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return False
    return isinstance(issues, list) and all(
        isinstance(issue, dict) and str(issue.get("check_name", "")).startswith(_CHECK_NAMES) for issue in issues
    )
