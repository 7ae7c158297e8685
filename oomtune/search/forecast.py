"""How much is still to do: the search played to its end against what the curves known so far leave possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from oomtune.calibration import next_further, next_size
from oomtune.domain import (
    Budget,
    FailedSize,
    Kind,
    Lane,
    Outcome,
    Point,
    Purpose,
    SearchSpace,
    Stage,
    Trial,
    TrialRecord,
)
from oomtune.search.curve import borrow_line, lane_lines
from oomtune.search.evidence import lane_views
from oomtune.search.line import Line, line_from_one
from oomtune.search.order import next_trial_of_all

_MOST_TRIALS = 60
# Playing the search through more lanes than this would take longer than it is worth to know.
_MOST_LANES = 60
_PLAYS = 5
# How far a lane lies from what its curve, or its neighbours', says of it; and one run from another.
_LANE_NOISE = 0.03
_RUN_NOISE = 0.015


def trials_ahead(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> list[Purpose]:
    """The purposes of the trials that would follow, by several plays of the search to its end."""
    if len(space.lanes()) > _MOST_LANES or not any(
        record.outcome.peak_bytes or record.outcome.points for record in history
    ):
        return []
    plays = [_play(space, budget, history, Random(seed)) for seed in range(_PLAYS)]  # noqa: S311
    return sorted(plays, key=len)[_PLAYS // 2]


def _play(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord], chance: Random) -> list[Purpose]:
    lines = _imagined(space, budget, history, chance)
    played = list(history)
    ahead: list[Purpose] = []
    while len(ahead) < _MOST_TRIALS and (trial := next_trial_of_all(space, budget, played)) is not None:
        lane = trial.candidate.lane
        if lane not in lines:  # a bucket's: they are known when the answer is
            lines |= _imagined(space, budget, played, chance, beside=[lane])
        outcome = _outcome(trial, lines[lane], budget, chance)
        played.append(TrialRecord(number=len(played) + 1, trial=trial, outcome=outcome))
        ahead.append(trial.purpose)
    return ahead


def _imagined(
    space: SearchSpace,
    budget: Budget,
    history: Sequence[TrialRecord],
    chance: Random,
    beside: Sequence[Lane] = (),
) -> dict[Lane, Line | None]:
    """A line for every lane that what is known leaves possible. Where lanes know one only from others, all of one
    precision lie to the same side of what is expected."""
    views = lane_views(space, history, budget, beside)
    known = lane_lines(views, budget.budget_bytes, space.resolution)
    sides = {lane.precision: chance.uniform(-1, 1) for lane in views}
    lines: dict[Lane, Line | None] = {}
    for lane in beside or views:
        view = views[lane]
        loan = None if lane in known else borrow_line(lane, known, budget.budget_bytes)
        line = known.get(lane) or line_from_one(view.peaks, loan.expected if loan else None)
        off = 0.0 if lane in known else chance.gauss(0, _LANE_NOISE)
        off += loan.spread * sides[lane.precision] if loan and not view.peaks else 0.0
        lines[lane] = line and Line(
            fixed_bytes=line.fixed_bytes,
            bytes_per_sample=line.bytes_per_sample * math.exp(off),
        )
    return lines


def _outcome(trial: Trial, line: Line | None, budget: Budget, chance: Random) -> Outcome:
    def peak(batch: int) -> int:
        typical = line.fixed_bytes + line.bytes_per_sample * batch if line else batch
        return max(1, int(typical * math.exp(chance.gauss(0, _RUN_NOISE))))

    if trial.purpose is Purpose.CALIBRATE:
        return _climb(trial, peak, budget)
    runs = 2 if trial.purpose is Purpose.CONFIRM else 1
    peak_bytes = max(peak(trial.candidate.batch_size) for _ in range(runs))
    own = Point(batch_size=trial.candidate.batch_size, peak_bytes=peak_bytes, step_ms=1.0)
    further, failed = _run(
        lambda points: next_further(trial.further, [own, *points], budget.budget_bytes), peak, budget
    )
    return Outcome(
        kind=Kind.FITS if peak_bytes <= budget.budget_bytes else Kind.DEVICE_OOM,
        stage=Stage.DONE,
        peak_bytes=peak_bytes,
        step_ms=1.0,
        further=further,
        further_failed=failed,
    )


def _climb(trial: Trial, peak: Callable[[int], int], budget: Budget) -> Outcome:
    points, failed = _run(lambda points: next_size(trial.climb, points, budget.budget_bytes), peak, budget)
    return Outcome(
        kind=Kind.DEVICE_OOM if failed else Kind.FITS,
        stage=Stage.DONE,
        peak_bytes=failed.peak_bytes if failed else points[-1].peak_bytes,
        points=points,
        failed_batch_size=failed.batch_size if failed else None,
    )


def _run(
    following: Callable[[Sequence[Point]], int | None], peak: Callable[[int], int], budget: Budget
) -> tuple[tuple[Point, ...], FailedSize | None]:
    """The sizes that fit in one process, one following the other, and the one that does not."""
    points: list[Point] = []
    while (size := following(points)) is not None:
        point = Point(batch_size=size, peak_bytes=peak(size), step_ms=1.0)
        if point.peak_bytes > budget.budget_bytes:
            return tuple(points), FailedSize(batch_size=size, kind=Kind.DEVICE_OOM, peak_bytes=point.peak_bytes)
        points.append(point)
    return tuple(points), None
