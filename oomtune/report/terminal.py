"""Terminal output for probes, explanations and diagnoses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from oomtune.diagnosis import Diagnosis
from oomtune.diagnosis.names import size_of
from oomtune.domain import Budget, Explanation, ProbeResult, TrialRecord
from oomtune.report.answer import (
    LengthRow,
    answer_rows,
    finding_rows,
    length_histogram,
    length_rows,
    paste_lines,
    without_length,
)
from oomtune.report.explanation import (
    RemedyRow,
    anatomy_notes,
    before_row,
    explanation_title,
    growth_sentences,
    layer_rows,
    part_rows,
    peak_sentence,
    remedy_notes,
    remedy_rows,
)
from oomtune.report.trial_rows import TrialRow, trial_row
from oomtune.units import format_bytes, format_seconds

_BAR_WIDTH = 20
_LONGEST_LINE = 300


def trial_table(records: Iterable[TrialRecord], budget: Budget) -> Table:
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
            escape(row.configuration),
            _memory_bar(row, budget),
            row.memory,
            Text(row.ended, style=_style(row)),
            f"{row.duration_s:.1f} s",
        )
    return table


def _style(row: TrialRow) -> str:
    return "green" if row.run.fits else "red"


def _memory_bar(row: TrialRow, budget: Budget) -> Text:
    """Draw the peak as a share of the limit, with a mark where the headroom begins."""
    if row.share is None:
        return Text("·" * _BAR_WIDTH, style="dim")
    filled = round(min(1.0, row.share) * _BAR_WIDTH)
    wall = min(_BAR_WIDTH - 1, round(budget.budget_bytes / budget.limit_bytes * _BAR_WIDTH))
    cells = ["█" if cell < filled else "·" for cell in range(_BAR_WIDTH)]
    if filled <= wall:
        cells[wall] = "▏"
    return Text("".join(cells), style=_style(row))


def trial_line(record: TrialRecord, budget: Budget) -> str:
    """Return a trial on one line, for output that is not a terminal."""
    row = trial_row(record, budget)
    memory = f"{row.memory} ({row.share:.0%} of the limit)" if row.share is not None else ""
    ended = ["fits", memory, f"then {row.then}"] if row.then else [row.ended, memory]
    words = ", ".join(word for word in (*ended, format_seconds(row.duration_s)) if word)
    return f"trial {row.number} {row.purpose}: {row.configuration}: {words}"


def print_answer(console: Console, result: ProbeResult) -> None:
    _print_whole(console, _answer(result))


def _answer(result: ProbeResult) -> RenderableType:
    """Return the answer, the frontier, and the lines to paste into a script."""
    title = f"{escape(result.spec.name)} on {escape(result.device.name)}"
    table = Table(title=title, title_justify="left", box=box.ROUNDED, show_header=False)
    table.add_column(style="dim")
    table.add_column(style="bold")
    for name, value in answer_rows(result):
        table.add_row(name, escape(value))
    parts: list[RenderableType] = [table]
    for finding in finding_rows(result):
        parts += ["", Text(finding.message, style="red")]
        parts += [Text(f"  {words}") for words in (finding.where, finding.hint) if words]
    if len(result.frontier) > 1:
        parts += ["", _frontier(result)]
    if lengths := length_rows(result):
        parts += ["", _lengths(lengths), _histogram(result)]
    if result.tuned_path is not None:
        parts += ["", _unbroken(f"tuned config: {result.tuned_path}"), "", "To train with it:"]
        parts += [_unbroken(f"  {line}", style="cyan") for line in paste_lines(result)]
    return Group(*parts)


def _print_whole(console: Console, renderable: RenderableType) -> None:
    """Print without cropping: lines to copy stay whole on a narrow terminal."""
    console.print(renderable, crop=False)


def _unbroken(line: str, style: str = "") -> Text:
    return Text(line, style=style, no_wrap=True, overflow="ignore")


def _headed_table(texts: Sequence[str], numbers: Sequence[str], title: str | None = None) -> Table:
    """Return a table with columns of text, then of numbers."""
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, header_style="dim", show_edge=title is not None
    )
    for name in texts:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=title is None)
    return table


def _frontier(result: ProbeResult) -> Table:
    """Show the largest batch of each lane, with a `+` where a larger one may fit."""
    points = {(point.lane.sequence_length or 0, without_length(point.lane)): point for point in result.frontier}
    names = dict.fromkeys(without_length(lane) for lane in result.spec.space.lanes())
    columns = [name for name in names if any(column == name for _, column in points)]
    table = _headed_table((), ("sequence", *map(escape, columns)), title="largest batch that ran")
    for length in sorted({length for length, _ in points}):
        cells = []
        for column in columns:
            point = points.get((length, column))
            cells.append("" if point is None else f"{point.batch_size}{'' if point.edge_known else '+'}")
        table.add_row(str(length or "-"), *cells)
    return table


def _lengths(rows: Sequence[LengthRow]) -> Table:
    table = _headed_table((), ("sequence", "samples cut", "padding"), title="the data at each length")
    for row in rows:
        cells = (str(row.length), f"{row.share_cut:.1%}", f"{row.share_padding:.0%}")
        table.add_row(*cells, style="bold" if row.is_chosen else "")
    return table


def _histogram(result: ProbeResult) -> Table:
    scan = result.spec.scan
    assert scan is not None, "there are length rows only for data with lengths"
    bars = length_histogram(scan.lengths)
    most = max(samples for _, _, samples in bars)
    table = Table(title="sample lengths", title_justify="left", box=None, show_header=False, padding=(0, 1))
    table.add_column(justify="right", style="dim")
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for first, last, samples in bars:
        table.add_row(f"{first}-{last}", "█" * math.ceil(samples / most * 2 * _BAR_WIDTH), f"{samples:,}")
    return table


def print_explanation(console: Console, explanation: Explanation) -> None:
    remedies = remedy_rows(explanation)
    name, device = explanation.spec.name, explanation.device.name
    parts: list[RenderableType] = [
        _title(f"{name} on {device}, {explanation_title(explanation)}"),
        "",
        _title("Memory at the peak"),
        Text(f"  {peak_sentence(explanation)}"),
    ]
    if explanation.anatomy is not None:
        parts += [_parts(explanation), *(Text(f"  {note}", style="dim") for note in anatomy_notes(explanation))]
    if layer_rows(explanation):
        parts += ["", _title("The layers that hold the most"), _layers(explanation)]
    parts += ["", _title("How it grows"), *(Text(f"  {sentence}") for sentence in growth_sentences(explanation))]
    parts += ["", _title("Remedies, each run with the same candidate")]
    parts += [_remedies([before_row(explanation), *remedies])]
    parts += [Text(f"  {note}", style="dim") for note in remedy_notes(explanation)]
    _print_whole(console, Group(*parts, *_unmeasured(remedies), *_spec_lines(remedies)))


def _title(text: str) -> Text:
    return Text(text, style="bold")


def _parts(explanation: Explanation) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    sides: tuple[JustifyMethod, ...] = ("left", "right", "right", "left")
    for justify in sides:
        table.add_column(justify=justify, no_wrap=True)
    table.add_column()  # on a narrow screen only the words wrap
    for row in part_rows(explanation):
        bar = Text("█" * round(row.share * _BAR_WIDTH), style="cyan")
        table.add_row(f" {row.name}", row.size, f"{row.share:.0%}", bar, Text(row.origin, style="dim"))
    return table


def _layers(explanation: Explanation) -> Table:
    table = _headed_table(("layer", "class"), ("weights", "activations", "of the peak"))
    for layer, share in layer_rows(explanation):
        sizes = (format_bytes(layer.weights_bytes), format_bytes(layer.activations_bytes))
        table.add_row(escape(layer.name), escape(layer.class_name), *sizes, f"{share:.0%}")
    return table


def _remedies(rows: Sequence[RemedyRow]) -> Table:
    table = _headed_table(("remedy",), ("peak", "", "step", "", "largest batch"))
    for row in rows:
        if not row.problem:
            table.add_row(escape(row.name), row.peak, row.saves, row.step, row.slower, row.batch)
    return table


def _unmeasured(rows: Sequence[RemedyRow]) -> list[Text]:
    """Return the remedies that could not be measured, by reason."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.problem:
            names.setdefault(row.problem, []).append(row.name)
    return [Text(f"  not measured: {', '.join(group)}: {problem}", style="dim") for problem, group in names.items()]


def _spec_lines(rows: Sequence[RemedyRow]) -> list[RenderableType]:
    """Return the spec entries of each helpful remedy, as lines to copy."""
    helpful = [row for row in rows if row.helps]
    if not helpful:
        return []
    width = max(len(row.name) for row in helpful)
    lines = [("" if place else row.name, line) for row in helpful for place, line in enumerate(row.lines)]
    return [
        "",
        _title("To use one, add its entry to that section of the spec, or try it with --set section.entry=value"),
        *(_unbroken(f"  {name:<{width}}  {line}", style="cyan") for name, line in lines),
    ]


def diagnosis_sentence(diagnosis: Diagnosis) -> str:
    """Return the answer in one sentence, or two when memory ran out earlier and the run went on."""
    if diagnosis.is_memory:
        return {"device_oom": "Out of device memory.", "host_oom": "Out of host memory."}[diagnosis.kind]
    earlier = " Memory ran out earlier in the log, but the run went on." if diagnosis.survived else ""
    cause = f"Not memory: {diagnosis.cause}." if diagnosis.failed else "No failure in this log."
    return f"{cause}{earlier}"


def diagnosis_rows(diagnosis: Diagnosis, *, with_unknown: bool = False) -> list[tuple[str, str]]:
    """Return the facts in the log; with `with_unknown`, also a row for each fact that the log lacks."""
    line = diagnosis.line
    shown = line if with_unknown or len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."
    rows = [
        (f"line {diagnosis.line_number}", shown),
        ("tensor", _tensor(diagnosis)),
        ("requested", format_bytes(diagnosis.bytes_requested) if diagnosis.bytes_requested else ""),
        ("op", diagnosis.op or ""),
        ("layer", diagnosis.layer or ""),
        ("allocator", diagnosis.allocator or ""),
        ("device", diagnosis.device or ""),
        ("how full", _how_full(diagnosis)),
    ]
    return [(name, value or "not in the log") for name, value in rows if value or with_unknown]


def _tensor(diagnosis: Diagnosis) -> str:
    if diagnosis.tensor_shape is None:
        return ""
    size = size_of(diagnosis.tensor_shape, diagnosis.dtype)
    words = [str(list(diagnosis.tensor_shape)), diagnosis.dtype, format_bytes(size) if size else None]
    return ", ".join(word for word in words if word)


def _how_full(diagnosis: Diagnosis) -> str:
    used, limit = diagnosis.in_use_bytes, diagnosis.limit_bytes
    if used is not None and limit:
        return f"{format_bytes(used)} of {format_bytes(limit)} in use ({used / limit:.0%})"
    if used is not None:
        return f"{format_bytes(used)} in use"
    return f"a limit of {format_bytes(limit)}" if limit else ""
