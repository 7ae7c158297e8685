"""An explanation on a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from oomtune.domain import Explanation
from oomtune.report.explanation import (
    anatomy_notes,
    before_row,
    growth_sentences,
    headline,
    layer_rows,
    part_rows,
    peak_sentence,
    remedy_notes,
    remedy_rows,
)
from oomtune.units import format_bytes

_BAR_WIDTH = 20


def print_explanation(console: Console, explanation: Explanation) -> None:
    console.print(_shown(explanation), crop=False)  # what is to be pasted is whole, however narrow the terminal


def _shown(explanation: Explanation) -> RenderableType:
    name, device = explanation.spec.name, explanation.device.name
    parts: list[RenderableType] = [
        Text(f"{name} on {device}, {headline(explanation)}", style="bold"),
        "",
        _title("Where the memory is at the peak"),
        Text(f"  {peak_sentence(explanation)}"),
    ]
    if explanation.anatomy is not None:
        parts += [_parts(explanation), *(Text(f"  {note}", style="dim") for note in anatomy_notes(explanation))]
    if layer_rows(explanation):
        parts += ["", _title("The layers that hold the most"), _layers(explanation)]
    parts += ["", _title("How it grows"), *(Text(f"  {sentence}") for sentence in growth_sentences(explanation))]
    parts += ["", _title("Remedies, each run at the same candidate"), _remedies(explanation)]
    parts += [Text(f"  {note}", style="dim") for note in remedy_notes(explanation)]
    return Group(*parts, *_failed(explanation), *_lines(explanation))


def _title(text: str) -> Text:
    return Text(text, style="bold")


def _parts(explanation: Explanation) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    sides: tuple[JustifyMethod, ...] = ("left", "right", "right", "left")
    for justify in sides:
        table.add_column(justify=justify, no_wrap=True)
    table.add_column()  # on a narrow screen it is the words that wrap
    for row in part_rows(explanation):
        bar = Text("█" * round(row.share * _BAR_WIDTH), style="cyan")
        table.add_row(f" {row.name}", row.size, f"{row.share:.0%}", bar, Text(row.how, style="dim"))
    return table


def _layers(explanation: Explanation) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", show_edge=False)
    table.add_column("layer")
    table.add_column("class", style="dim")
    for name in ("weights", "activations", "of the peak"):
        table.add_column(name, justify="right", no_wrap=True)
    for layer, share in layer_rows(explanation):
        sizes = (format_bytes(layer.weights_bytes), format_bytes(layer.activations_bytes))
        table.add_row(escape(layer.name), escape(layer.class_name), *sizes, f"{share:.0%}")
    return table


def _remedies(explanation: Explanation) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", show_edge=False)
    table.add_column("remedy")
    for name in ("peak", "", "step", "", "largest batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in (before_row(explanation), *remedy_rows(explanation)):
        if not row.problem:
            table.add_row(escape(row.name), row.peak, row.saves, row.step, row.slower, row.batch)
    return table


def _lines(explanation: Explanation) -> list[RenderableType]:
    """What to put into the spec for each remedy that saves something, to be copied whole."""
    rows = [row for row in remedy_rows(explanation) if row.helps]
    if not rows:
        return []
    widest = max(len(row.name) for row in rows)
    lines = [("" if place else row.name, line) for row in rows for place, line in enumerate(row.lines)]
    return [
        "",
        _title("To use one, put its entry into that section of the spec, or try it with --set section.entry=value"),
        *(Text(f"  {name:<{widest}}  {line}", style="cyan", no_wrap=True, overflow="ignore") for name, line in lines),
    ]


def _failed(explanation: Explanation) -> list[Text]:
    """The remedies that there is nothing to show of, and why."""
    names: dict[str, list[str]] = {}
    for row in remedy_rows(explanation):
        if row.problem:
            names.setdefault(row.problem, []).append(row.name)
    return [Text(f"  not here: {', '.join(together)}: {problem}", style="dim") for problem, together in names.items()]
