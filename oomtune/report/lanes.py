"""Every lane in numbers: the largest batch that ran in it, and the line through its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oomtune.domain import Lane, ProbeResult
from oomtune.search.evidence import lane_views
from oomtune.search.line import Line, rising_line


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEntry:
    """One lane in numbers: what ran, and what the line through it says. None where no line could be fitted."""

    lane: Lane
    batch_size: int
    edge_known: bool
    fixed_bytes: float | None = None
    bytes_per_sample: float | None = None
    fitted_edge: float | None = None


def apart_from_length(lane: Lane) -> str:
    """A lane without its length: what a line of the frontier is drawn for."""
    return str(replace(lane, sequence_length=None))


def fitted_lines(result: ProbeResult) -> dict[Lane, Line]:
    """The line through what was measured in each lane that has shown one. The search bends its lines to edges that it
    knows; what is called a fit is the one that is drawn through the points, wherever its numbers are shown."""
    views = lane_views(result.spec.space, result.records, result.budget)
    lines = {lane: rising_line(view.peaks) for lane, view in views.items()}
    return {lane: line for lane, line in lines.items() if line is not None}


def edge_words(edge: float) -> str:
    """The batch size at which a line meets the budget."""
    return f"{edge:,.0f}"


def lane_entries(result: ProbeResult) -> list[LaneEntry]:
    """Every lane in which something fitted."""
    lines = fitted_lines(result)
    entries = []
    for point in result.frontier:
        entry = LaneEntry(lane=point.lane, batch_size=point.batch_size, edge_known=point.edge_known)
        line = lines.get(point.lane)
        if line is not None:
            entry = replace(
                entry,
                fixed_bytes=line.fixed_bytes,
                bytes_per_sample=line.bytes_per_sample,
                fitted_edge=line.edge(result.budget.budget_bytes),
            )
        entries.append(entry)
    return entries
