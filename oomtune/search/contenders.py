"""Which lanes may still win: a lane is dropped once what failed in it, or in the same lane at a shorter sequence, or
what its neighbours' curves say, leaves it no room to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oomtune.domain import Budget, Fit, Lane, Objective, SearchSpace
from oomtune.search.curve import Loan, borrow_line
from oomtune.search.evidence import LaneView
from oomtune.search.line import Line, line_from_one
from oomtune.search.objective import batch_to_beat

# Noise and fragmentation make even a lane's own line miss by this much.
_DOUBT = 1.08
# A batch that is smaller than another by less than this part of the resolution asks the same.
_SAME = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A lane that may still win, the batch it needs for that, and what is thought of its curve."""

    view: LaneView
    need: int
    loan: Loan | None
    line: Line | None

    @property
    def lane(self) -> Lane:
        return self.view.lane

    @property
    def length(self) -> int:
        return self.lane.sequence_length or 0

    @property
    def begun(self) -> bool:
        return bool(self.view.peaks or self.view.failed)

    def tokens(self, budget_bytes: int) -> float:
        top = self.view.top or 0
        batch = min(top, self.line.edge(budget_bytes)) if self.line else top
        return batch * (self.length or 1)


def contending_lanes(
    space: SearchSpace,
    budget: Budget,
    views: Mapping[Lane, LaneView],
    best: Fit | None,
    lines: Mapping[Lane, Line],
) -> list[Contender]:
    """The lanes whose edge is not known and may beat the best so far, in order of preference."""
    may_win = []
    for lane, view in views.items():
        # The winner's edge is proved in the end; of the others it is enough to know it.
        winner = best is not None and best.candidate.lane == lane
        done = view.closed(space.resolution) if winner else view.known(space.resolution)
        if done or not worth_running(space, lane):
            continue
        need = space.batch_sizes[0] if best is None else _need(space, lane, best)
        if need is None or view.reach is None or need > view.reach:
            continue
        loan = None if lane in lines else borrow_line(lane, lines, budget.budget_bytes)
        line = lines.get(lane) or line_from_one(view.peaks, loan.expected if loan else None)
        contender = Contender(view=view, need=need, loan=loan, line=line)
        in_vain = _hopeless(contender, lane in lines, space, budget) or _asked_already(contender, space)
        if winner or space.every_lane or not in_vain:
            may_win.append(contender)
    return may_win


def worth_running(space: SearchSpace, lane: Lane) -> bool:
    """A longer sequence never trains more samples a second, so for throughput only the shortest is run."""
    if space.every_lane or space.objective is not Objective.THROUGHPUT or space.sequence_lengths is None:
        return True
    return lane.sequence_length == space.sequence_lengths[0]


def _need(space: SearchSpace, lane: Lane, best: Fit) -> int | None:
    if space.every_lane or space.objective is Objective.THROUGHPUT:
        return space.batch_sizes[0]
    return batch_to_beat(space, lane, best.candidate)


def _hopeless(contender: Contender, own_line: bool, space: SearchSpace, budget: Budget) -> bool:
    """Does the curve leave no room, even if it is as wrong as it may be? Never asked when the answer must be exact."""
    if space.resolution == 0:
        return False
    line = contender.line if own_line else contender.loan.flattest if contender.loan else None
    return line is not None and line.edge(budget.budget_bytes) * _DOUBT < contender.need


def _asked_already(contender: Contender, space: SearchSpace) -> bool:
    """Has a batch failed that is hardly larger than what the lane needs to win? Another trial would ask the same again,
    for fewer tokens than `resolution` leaves open anyway. Of other objectives a longer sequence may be all the gain."""
    if space.objective is not Objective.TOKENS:
        return False
    return any(contender.need > batch * (1 - _SAME * space.resolution) for batch in contender.view.failed)
