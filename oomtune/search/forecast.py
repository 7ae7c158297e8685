"""How much is still to do: the search played to its end against the curves known so far."""

from __future__ import annotations

from collections.abc import Sequence

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
from oomtune.search.curve import Line, borrow_line, line_from_one, rising_line
from oomtune.search.evidence import lane_views
from oomtune.search.plan import next_trial

_MOST_TRIALS = 60
# Playing the search through more lanes than this would take longer than it is worth to know.
_MOST_LANES = 60


def trials_ahead(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> list[Purpose]:
    """The purposes of the trials that would follow if every lane behaved as its curve predicts."""
    if len(space.lanes()) > _MOST_LANES or not any(record.outcome.peak_bytes for record in history):
        return []
    played = list(history)
    views = lane_views(space, history)
    lines = {lane: line for lane, view in views.items() if (line := rising_line(view.peaks)) is not None}
    ahead: list[Purpose] = []
    while len(ahead) < _MOST_TRIALS and (trial := next_trial(space, budget, played)) is not None:
        lane = trial.candidate.lane
        loan = borrow_line(lane, lines)
        line = lines.get(lane) or line_from_one(views[lane].peaks, loan.expected if loan else None)
        played.append(_as_predicted(trial, len(played) + 1, line, budget))
        ahead.append(trial.purpose)
    return ahead


def _as_predicted(trial: Trial, number: int, line: Line | None, budget: Budget) -> TrialRecord:
    peak = _peak(trial.candidate, line)
    fits = peak <= budget.budget_bytes or trial.purpose is Purpose.CONFIRM
    points = (
        tuple(
            Point(batch_size=size, peak_bytes=_peak(trial.candidate.lane.at(size), line), step_ms=1.0)
            for size in trial.climb
            if _peak(trial.candidate.lane.at(size), line) <= budget.budget_bytes / 2
        )
        if trial.purpose is Purpose.CALIBRATE
        else ()
    )
    return TrialRecord(
        number=number,
        trial=trial,
        outcome=Outcome(
            kind=Kind.FITS if fits else Kind.DEVICE_OOM,
            stage=Stage.DONE if fits else Stage.TRAIN,
            peak_bytes=min(peak, budget.budget_bytes) if fits else None,
            step_ms=1.0,
            points=points,
        ),
    )


def _peak(candidate: Candidate, line: Line | None) -> int:
    return int(line.fixed_bytes + line.bytes_per_sample * candidate.batch_size) if line else candidate.batch_size
