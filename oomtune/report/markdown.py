"""A probe as Markdown, for a job's summary or a pull request."""

from __future__ import annotations

from oomtune.domain import ProbeResult
from oomtune.report.escape import markdown_block, markdown_text
from oomtune.report.findings import finding_rows
from oomtune.report.lanes import edge_words, lane_entries
from oomtune.report.marks import COMMENT
from oomtune.report.model import answer_rows, length_rows
from oomtune.report.trial_entries import TrialEntry, trial_entries
from oomtune.report.verdict import verdict_words
from oomtune.units import format_bytes, format_count, format_ms


def markdown_page(result: ProbeResult, *, tuned_text: str = "") -> str:
    verdict = verdict_words(result)
    lines = [
        COMMENT,
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
    if found := finding_rows(result):
        lines += ["", "What will matter in longer training:", ""]
        lines += [f"- {markdown_text(' '.join(filter(None, (row.message, row.where, row.hint))))}" for row in found]
    lines += _frontier(result) + _lengths(result) + _trials(result)
    if tuned_text:
        lines += ["", "<details><summary>The tuned config</summary>", "", *markdown_block(tuned_text, "yaml")]
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _table(*columns: tuple[str, str], rows: list[tuple[str, ...]]) -> list[str]:
    """A table after an empty line; a column is its heading, and `:` where numbers stand."""
    rule = "|".join("--:" if kind == ":" else "---" for _, kind in columns)
    return [
        "",
        f"| {' | '.join(name for name, _ in columns)} |",
        f"|{rule}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _frontier(result: ProbeResult) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (
            markdown_text(str(entry.lane)),
            str(entry.batch_size),
            "known" if entry.edge_known else "may be larger",
            "" if entry.fitted_edge is None else edge_words(entry.fitted_edge),
        )
        for entry in lane_entries(result)
    ]
    columns = (("lane", "-"), ("largest batch", ":"), ("edge", "-"), ("budget met at, by the fit", ":"))
    return ["", "### The largest batch of each lane", *_table(*columns, rows=rows)] if rows else []


def _lengths(result: ProbeResult) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (str(row.length), f"{row.share_cut:.1%}", f"{row.share_padding:.0%}") for row in length_rows(result)
    ]
    columns = (("sequence length", ":"), ("samples cut", ":"), ("padding", ":"))
    return ["", "### The data at each length", *_table(*columns, rows=rows)] if rows else []


def _trials(result: ProbeResult) -> list[str]:
    entries = trial_entries(result)
    if not entries:
        return []
    columns = (
        ("#", ":"), ("purpose", "-"), ("batch size", ":"), ("lane", "-"), ("ended", "-"), ("peak", ":"),
        ("of the limit", ":"), ("step", ":"), ("samples/s", ":"), ("took", ":"),
    )  # fmt: skip
    rows = [_trial(entry, result) for entry in entries]
    return [
        "",
        f"<details><summary>{format_count(len(rows), 'trial')}</summary>",
        *_table(*columns, rows=rows),
        "",
        "</details>",
    ]


def _trial(entry: TrialEntry, result: ProbeResult) -> tuple[str, ...]:
    run = entry.run
    peak, step_ms, speed = run.peak_bytes, run.step_ms, run.samples_per_second
    return (
        str(run.trial_number),
        str(run.purpose),
        entry.batch,
        markdown_text(str(run.candidate.lane)),
        f"{entry.ending.sign} {markdown_text(entry.ended)}",
        "" if peak is None else format_bytes(peak),
        "" if peak is None else f"{peak / result.budget.limit_bytes:.0%}",
        "" if step_ms is None else format_ms(step_ms),
        "" if speed is None else f"{speed:,.0f}",
        f"{entry.duration_s:.1f} s",
    )
