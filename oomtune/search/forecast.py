"""How much is still to do: the search played to its end against the curves known so far."""

from __future__ import annotations

from collections.abc import Sequence

from oomtune.calibration import next_size
from oomtune.domain import (
    Budget,
    Candidate,
    Kind,
    Outcome,
    Point,
    Purpose,
    SearchSpace,
    Stage,
    Trial,
    TrialRecord,
)
from oomtune.search.curve import Line, borrow_line, lane_lines, line_from_one
from oomtune.search.evidence import lane_views
from oomtune.search.plan import next_trial

_MOST_TRIALS = 60
# Playing the search through more lanes than this would take longer than it is worth to know.
_MOST_LANES = 60


def trials_ahead(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> list[Purpose]:
    """The purposes of the trials that would follow if every lane behaved as its curve predicts."""
    if len(space.lanes()) > _MOST_LANES or not any(
        record.outcome.peak_bytes or record.outcome.points for record in history
    ):
        return []
    played = list(history)
    views = lane_views(space, history, budget)
    lines = lane_lines(views, budget.budget_bytes, space.resolution)
    ahead: list[Purpose] = []
    while len(ahead) < _MOST_TRIALS and (trial := next_trial(space, budget, played)) is not None:
        lane = trial.candidate.lane
        loan = borrow_line(lane, lines)
        line = lines.get(lane) or line_from_one(views[lane].peaks, loan.expected if loan else None)
        played.append(_as_predicted(trial, len(played) + 1, line, budget))
        ahead.append(trial.purpose)
    return ahead


def _as_predicted(trial: Trial, number: int, line: Line | None, budget: Budget) -> TrialRecord:
    outcome = _climb(trial, line, budget) if trial.purpose is Purpose.CALIBRATE else _run(trial, line, budget)
    return TrialRecord(number=number, trial=trial, outcome=outcome)


def _run(trial: Trial, line: Line | None, budget: Budget) -> Outcome:
    peak = _peak(trial.candidate, line)
    fits = peak <= budget.budget_bytes or trial.purpose is Purpose.CONFIRM
    return Outcome(
        kind=Kind.FITS if fits else Kind.DEVICE_OOM,
        stage=Stage.DONE,
        peak_bytes=min(peak, budget.budget_bytes) if fits else peak,
        step_ms=1.0,
    )


def _climb(trial: Trial, line: Line | None, budget: Budget) -> Outcome:
    points: list[Point] = []
    while (size := next_size(trial.climb, points, budget.budget_bytes)) is not None:
        peak = _peak(trial.candidate.lane.at(size), line)
        points.append(Point(batch_size=size, peak_bytes=peak, step_ms=1.0))
    over = [point.batch_size for point in points if point.peak_bytes > budget.budget_bytes]
    return Outcome(
        kind=Kind.DEVICE_OOM if over else Kind.FITS,
        stage=Stage.DONE,
        peak_bytes=points[-1].peak_bytes,
        points=tuple(point for point in points if point.batch_size not in over),
        failed_batch_size=min(over, default=None),
    )


def _peak(candidate: Candidate, line: Line | None) -> int:
    return (
        max(1, int(line.fixed_bytes + line.bytes_per_sample * candidate.batch_size)) if line else candidate.batch_size
    )
