"""Every lane in numbers: the largest batch that ran in it, and the line through its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oomtune.domain import Lane, ProbeResult
from oomtune.search.evidence import lane_views
from oomtune.search.line import rising_line


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


def lane_entries(result: ProbeResult) -> list[LaneEntry]:
    """Every lane in which something fitted."""
    views = lane_views(result.spec.space, result.records, result.budget)
    entries = []
    for point in result.frontier:
        line = rising_line(views[point.lane].peaks)
        entry = LaneEntry(lane=point.lane, batch_size=point.batch_size, edge_known=point.edge_known)
        if line is not None:
            entry = replace(
                entry,
                fixed_bytes=line.fixed_bytes,
                bytes_per_sample=line.bytes_per_sample,
                fitted_edge=line.edge(result.budget.budget_bytes),
            )
        entries.append(entry)
    return entries
