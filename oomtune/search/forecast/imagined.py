"""A memory curve for every lane, drawn from what history leaves possible: a lane is as it is thought to be, or larger,
or smaller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from oomtune.domain import Budget, Lane, SearchSpace, TrialRecord
from oomtune.search.curve import borrow_line, lane_lines
from oomtune.search.evidence import LaneView, lane_views
from oomtune.search.line import Line, line_from_one
from oomtune.search.step import edge_belief

# How far a lane lies from what its neighbours say of it, beside what they leave open.
_LANE_NOISE = 0.03
# A lane has room for a sample above this share of the budget, however large its fixed part looks.
_MOST_FIXED = 0.95


def imagined_lines(
    space: SearchSpace, budget: Budget, history: Sequence[TrialRecord], chance: Random, beside: Sequence[Lane] = ()
) -> dict[Lane, Line]:
    """A line for every lane of the space, or for those `beside` it. Where lanes know one only from others, all of one
    precision lie to the same side of what is expected."""
    views = lane_views(space, history, budget, beside)
    known = lane_lines(views, budget.budget_bytes, space.resolution)
    sides = {lane.precision: chance.uniform(-1, 1) for lane in views}
    of_the_shortest = math.exp(chance.uniform(math.log(space.batch_sizes[0]), math.log(space.batch_sizes[-1])))
    lines = {}
    for lane in beside or views:
        view = views[lane]
        loan = None if lane in known else borrow_line(lane, known, budget.budget_bytes)
        line = known.get(lane) or line_from_one(view.peaks, loan.expected if loan else None)
        spread = loan.spread if loan else 0.0
        if line is None:  # nothing that ran tells of it
            lines[lane] = _with_edge(of_the_shortest * _beside_the_shortest(lane, space), 0.0, budget)
        elif view.peaks or view.failed:
            edge = _edge_between_what_ran(view, line, spread, budget, chance)
            lines[lane] = _with_edge(edge, line.fixed_bytes, budget)
        else:
            off = spread * sides[lane.precision] + chance.gauss(0, _LANE_NOISE)
            lines[lane] = _with_edge(line.edge(budget.budget_bytes) * math.exp(off), line.fixed_bytes, budget)
    return lines


def _edge_between_what_ran(view: LaneView, line: Line, spread: float, budget: Budget, chance: Random) -> float:
    return edge_belief(view, line, spread=spread, budget_bytes=budget.budget_bytes).quantile(chance.random())


def _beside_the_shortest(lane: Lane, space: SearchSpace) -> float:
    return space.sequence_lengths[0] / (lane.sequence_length or 1) if space.sequence_lengths else 1.0


def _with_edge(edge: float, fixed_bytes: float, budget: Budget) -> Line:
    fixed_bytes = min(fixed_bytes, _MOST_FIXED * budget.budget_bytes)
    return Line(fixed_bytes=fixed_bytes, bytes_per_sample=(budget.budget_bytes - fixed_bytes) / max(edge, 0.5))
