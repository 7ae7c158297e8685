"""The answer on a terminal."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from oomtune.domain import Budget, ProbeResult, TrialRecord
from oomtune.report.endings import further_words
from oomtune.report.findings import finding_rows
from oomtune.report.lanes import apart_from_length
from oomtune.report.model import (
    TrialRow,
    answer_rows,
    length_histogram,
    length_rows,
    paste_lines,
    trial_row,
)
from oomtune.units import format_seconds

_BAR_WIDTH = 20


def memory_bar(row: TrialRow, budget: Budget) -> Text:
    """How full the limit was, with a mark where the headroom begins."""
    share = min(1.0, row.share or 0.0)
    filled = round(share * _BAR_WIDTH)
    wall = min(_BAR_WIDTH - 1, round(budget.budget_bytes / budget.limit_bytes * _BAR_WIDTH))
    cells = ["█" if cell < filled else "·" for cell in range(_BAR_WIDTH)]
    if filled <= wall:
        cells[wall] = "▏"
    style = "green" if row.fits else "red"
    return Text("".join(cells), style=style) if row.share is not None else Text("·" * _BAR_WIDTH, style="dim")


def trial_table(records: list[TrialRecord], budget: Budget) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim", show_edge=False)
    table.add_column("#", justify="right")
    for name in ("trial", "configuration", "memory", ""):
        table.add_column(name, no_wrap=name != "configuration")
    table.add_column("ended", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for record in records:
        row = trial_row(record, budget)
        table.add_row(
            str(row.number),
            row.purpose,
            escape(row.candidate),
            memory_bar(row, budget),
            row.memory,
            Text(row.outcome, style="green" if row.fits else "red"),
            f"{row.duration_s:.1f} s",
        )
    return table


def answer(result: ProbeResult) -> RenderableType:
    """The answer, the frontier, and what to paste into a script."""
    title = f"{escape(result.spec.name)} on {escape(result.device.name)}"
    table = Table(title=title, title_justify="left", box=box.ROUNDED, show_header=False)
    table.add_column(style="dim")
    table.add_column(style="bold")
    for name, value in answer_rows(result):
        table.add_row(name, escape(value))
    parts: list[RenderableType] = [table, *_findings(result)]
    if len(result.frontier) > 1:
        parts += ["", _frontier(result)]
    if length_rows(result):
        parts += ["", _lengths(result), _histogram(result)]
    if result.tuned_path is not None:
        parts += ["", _whole(f"tuned config: {result.tuned_path}"), "", "To train with it:"]
        parts += [_whole(f"  {line}", style="cyan") for line in paste_lines(result)]
    return Group(*parts)


def _whole(line: str, style: str = "") -> Text:
    """A line to be copied, which is not broken."""
    return Text(line, style=style, no_wrap=True, overflow="ignore")


def _findings(result: ProbeResult) -> list[RenderableType]:
    """What will matter in longer training, each with its line and what to do."""
    parts: list[RenderableType] = []
    for row in finding_rows(result):
        parts += ["", Text(row.message, style="red")]
        parts += [Text(f"  {words}") for words in (row.where, row.hint) if words]
    return parts


def _frontier(result: ProbeResult) -> Table:
    """The largest batch that ran, by sequence length and all else; `+` where a larger one may fit."""
    columns = list(dict.fromkeys(apart_from_length(lane) for lane in result.spec.space.lanes()))
    batch = {(point.lane.sequence_length or 0, apart_from_length(point.lane)): point for point in result.frontier}
    columns = [name for name in columns if any(column == name for _, column in batch)]
    lengths = sorted({length for length, _ in batch})
    table = Table(title="largest batch that ran", title_justify="left", box=box.SIMPLE_HEAD, header_style="dim")
    table.add_column("sequence", justify="right")
    for column in columns:
        table.add_column(escape(column), justify="right")
    for length in lengths:
        cells = []
        for column in columns:
            point = batch.get((length, column))
            cells.append("" if point is None else f"{point.batch_size}{'' if point.edge_known else '+'}")
        table.add_row(str(length or "-"), *cells)
    return table


def _lengths(result: ProbeResult) -> Table:
    """What each length does to the samples of the data."""
    table = Table(title="the data at each length", title_justify="left", box=box.SIMPLE_HEAD, header_style="dim")
    for name in ("sequence", "samples cut", "padding"):
        table.add_column(name, justify="right")
    for row in length_rows(result):
        cells = (str(row.length), f"{row.share_cut:.1%}", f"{row.share_padding:.0%}")
        table.add_row(*cells, style="bold" if row.chosen else "")
    return table


def _histogram(result: ProbeResult) -> Table:
    scan = result.spec.scan
    assert scan is not None, "drawn only for data with lengths"
    bars = length_histogram(scan.lengths)
    most = max(many for _, _, many in bars)
    table = Table(title="how long samples are", title_justify="left", box=None, show_header=False, padding=(0, 1))
    table.add_column(justify="right", style="dim")
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for first, last, many in bars:
        table.add_row(f"{first}-{last}", "█" * math.ceil(many / most * 2 * _BAR_WIDTH), f"{many:,}")
    return table


def trial_line(record: TrialRecord, budget: Budget) -> str:
    """One trial on one line, for where there is no terminal."""
    row = trial_row(record, budget)
    memory = f"{row.memory} ({row.share:.0%} of the limit)" if row.share is not None else ""
    # The memory that a climb's row shows is that of the last size that fitted, not of the one it ended at.
    climbed = record.outcome.points and record.outcome.failed_batch_size
    after = row.outcome if climbed else further_words(record)
    ended = ["fits", memory, f"then {after}"] if after else [row.outcome, memory]
    words = ", ".join(word for word in (*ended, format_seconds(row.duration_s)) if word)
    return f"trial {row.number} {row.purpose}: {row.candidate}: {words}"


def print_answer(console: Console, result: ProbeResult) -> None:
    console.print(answer(result), crop=False)  # what is to be pasted is whole, however narrow the terminal
