"""A probe or a check as Markdown, for the summary of a CI job or for a pull request."""

from __future__ import annotations

import re

from oomtune.domain import ProbeResult
from oomtune.report import COMMENT_MARK
from oomtune.report.answer import (
    answer_rows,
    edge_text,
    finding_rows,
    fitted_lines,
    lane_rows,
    length_rows,
    verdict_words,
)
from oomtune.report.check import CheckReport
from oomtune.report.junit import xml_text
from oomtune.report.trial_rows import TrialRow, trial_rows
from oomtune.units import format_bytes, format_count, format_ms

_SPECIAL_CHARACTERS = "\\`*_[]|#~"


def markdown_text(text: str) -> str:
    """Escape text for one line of Markdown, and for the HTML that Markdown may hold."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for character in _SPECIAL_CHARACTERS:
        escaped = escaped.replace(character, f"\\{character}")
    return " ".join(xml_text(escaped).split())


def markdown_block(text: str, language: str = "") -> list[str]:
    """Return a code block with a fence that no line of the text can close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *xml_text(text).rstrip("\n").split("\n"), fence]


def probe_markdown(result: ProbeResult, *, tuned_text: str = "") -> str:
    verdict = verdict_words(result)
    lines = [
        COMMENT_MARK,
        f"## {verdict.sign} oomtune: {markdown_text(result.spec.name)}",
        "",
        markdown_text(verdict.sentence),
    ]
    if rows := answer_rows(result):
        lines += _table(("answer", "-"), ("", "-"), rows=[(name, markdown_text(value)) for name, value in rows])
    if result.problem is not None and result.problem.hint:
        lines += ["", "What to do:", "", *(f"- {markdown_text(line)}" for line in result.problem.hint.splitlines())]
    if result.problem is not None and result.problem.traceback:
        lines += ["", *markdown_block(result.problem.traceback, "text")]
    if findings := finding_rows(result):
        lines += ["", "What will matter in longer training:", ""]
        lines += [f"- {markdown_text(' '.join(filter(None, (row.message, row.where, row.hint))))}" for row in findings]
    lines += _lanes(result) + _lengths(result) + _trials(result)
    if tuned_text:
        lines += ["", "<details><summary>The tuned config</summary>", "", *markdown_block(tuned_text, "yaml")]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def check_markdown(report: CheckReport) -> str:
    """Return a section for the summary of a CI job."""
    lines = [
        f"### {'❌' if report.problem_kind else '✅'} oomtune: {markdown_text(report.name)}",
        "",
        markdown_text(report.sentence),
    ]
    if report.rows:
        lines += _table(
            ("", "-"), ("", "-"), rows=[(markdown_text(name), markdown_text(value)) for name, value in report.rows]
        )
    if report.spec_diff:
        lines += ["", report.edit_notice, "", *markdown_block("\n".join(report.spec_diff), "diff")]
    if report.problem:
        lines += ["", markdown_text(report.problem)]
    if report.traceback:
        lines += ["", *markdown_block(report.traceback, "text")]
    if report.hint:
        lines += ["", f"Next: {markdown_text(report.hint)}"]
    return "\n".join(lines) + "\n"


def _table(*columns: tuple[str, str], rows: list[tuple[str, ...]]) -> list[str]:
    """Return an empty line and a table. A column is a heading and an alignment: `:` for right, `-` for left."""
    rule = "|".join("--:" if alignment == ":" else "---" for _, alignment in columns)
    return [
        "",
        f"| {' | '.join(name for name, _ in columns)} |",
        f"|{rule}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _lanes(result: ProbeResult) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (
            markdown_text(str(row.lane)),
            str(row.batch_size),
            "known" if row.edge_known else "may be larger",
            "" if row.line_edge is None else edge_text(row.line_edge),
        )
        for row in lane_rows(result, fitted_lines(result))
    ]
    columns = (("lane", "-"), ("largest batch", ":"), ("edge", "-"), ("fit meets the budget at", ":"))
    return ["", "### The largest batch of each lane", *_table(*columns, rows=rows)] if rows else []


def _lengths(result: ProbeResult) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (str(row.length), f"{row.share_cut:.1%}", f"{row.share_padding:.0%}") for row in length_rows(result)
    ]
    columns = (("sequence length", ":"), ("samples cut", ":"), ("padding", ":"))
    return ["", "### The data at each length", *_table(*columns, rows=rows)] if rows else []


def _trials(result: ProbeResult) -> list[str]:
    rows = [_trial(row) for row in trial_rows(result)]
    if not rows:
        return []
    columns = (
        ("#", ":"), ("purpose", "-"), ("batch size", ":"), ("lane", "-"), ("ended", "-"), ("peak", ":"),
        ("of the limit", ":"), ("step", ":"), ("samples/s", ":"), ("took", ":"),
    )  # fmt: skip
    return [
        "",
        f"<details><summary>{format_count(len(rows), 'trial')}</summary>",
        *_table(*columns, rows=rows),
        "",
        "</details>",
    ]


def _trial(row: TrialRow) -> tuple[str, ...]:
    run = row.run
    return (
        str(row.number),
        row.purpose,
        row.batch,
        markdown_text(str(run.candidate.lane)),
        f"{row.ending.sign} {markdown_text(row.ended)}",
        "" if run.peak_bytes is None else format_bytes(run.peak_bytes),
        "" if row.share is None else f"{row.share:.0%}",
        "" if run.step_ms is None else format_ms(run.step_ms),
        "" if run.samples_per_second is None else f"{run.samples_per_second:,.0f}",
        f"{row.duration_s:.1f} s",
    )
