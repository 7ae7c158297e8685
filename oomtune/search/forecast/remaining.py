"""How much is still to do: the search played to its end against memory curves that history leaves possible."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from random import Random

from oomtune.domain import (
    BucketTurns,
    Budget,
    Climb,
    Climbed,
    Failed,
    FailedSize,
    Fitted,
    Kind,
    Lane,
    Outcome,
    Point,
    Purpose,
    SearchSpace,
    Stage,
    Trial,
    TrialError,
    TrialRecord,
)
from oomtune.search.belief import believe
from oomtune.search.climb import climb, go_further
from oomtune.search.curves import Line, borrow_line, line_from_one
from oomtune.search.followups import next_trial_of_all
from oomtune.search.forecast.pace import pace_of
from oomtune.search.lanes import lane_lines, lane_views
from oomtune.search.tuning import TUNING

# To play more trials, or through more lanes, would take longer than the forecast is worth.
_MOST = 60


def time_ahead_s(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> float | None:
    """Return the time that the rest of the probe may take; None when nothing predicts it.

    The search is played to its end several times. Of these, return the time that comes within a factor of two of the
    most of them.
    """
    if not history or len(space.lanes()) > _MOST:
        return None
    pace = pace_of(history, space.confirm_steps)
    plays = [
        pace.seconds(_play(space, budget, history, Random(seed)))  # noqa: S311
        for seed in range(TUNING.plays)
    ]
    middle = statistics.median(plays)
    # The most plays lie within a factor of two of a guess that has the shortest of them at its lower end.
    guesses = (*plays, *(2 * play for play in plays))
    return max(guesses, key=lambda guess: (sum(guess <= 2 * play <= 4 * guess for play in plays), -abs(guess - middle)))


def _play(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord], chance: Random) -> list[TrialRecord]:
    """Return the trials that may follow."""
    lines = _possible_lines(space, budget, history, chance)
    played = list(history)
    while len(played) - len(history) < _MOST:
        trial = next_trial_of_all(space, budget, played)
        if trial is None:
            break
        lane = trial.candidate.lane
        if lane not in lines:  # a bucket's lane, which depends on the answer
            lines |= _possible_lines(space, budget, played, chance, beside=[lane])
        outcome = _run(trial, lines[lane], budget, chance)
        played.append(TrialRecord(number=len(played) + 1, trial=trial, outcome=outcome))
    return played[len(history) :]


def _possible_lines(
    space: SearchSpace, budget: Budget, history: Sequence[TrialRecord], chance: Random, beside: Sequence[Lane] = ()
) -> dict[Lane, Line]:
    """Draw a line for every lane of the space, or for those `beside` it. Where a lane is known only from others, all
    lanes of its precision lie to the same side of what is expected."""
    views = lane_views(space, history, budget, beside)
    known = lane_lines(views)
    sides = {lane.precision: chance.uniform(-1, 1) for lane in views}
    shortest_edge = math.exp(chance.uniform(math.log(space.batch_sizes[0]), math.log(space.batch_sizes[-1])))
    lines = {}
    for lane in beside or views:
        view = views[lane]
        loan = None if lane in known else borrow_line(lane, known, budget.budget_bytes)
        line = known.get(lane) or line_from_one(view.peaks, loan.expected if loan else None)
        spread = loan.spread if loan else 0.0
        if line is None:  # nothing that ran predicts it
            shorter = space.sequence_lengths[0] / (lane.sequence_length or 1) if space.sequence_lengths else 1.0
            edge = shortest_edge * shorter
        elif view.begun:
            edge = believe(view, line, spread=spread, budget_bytes=budget.budget_bytes).quantile(chance.random())
        else:
            off = spread * sides[lane.precision] + chance.gauss(0, 2 * TUNING.noise)
            edge = line.edge(budget.budget_bytes) * math.exp(off)
        # A lane has room for a sample, however large its fixed part looks.
        fixed_bytes = min(line.fixed_bytes if line else 0.0, 0.95 * budget.budget_bytes)
        room = budget.budget_bytes - fixed_bytes
        lines[lane] = Line(fixed_bytes=fixed_bytes, bytes_per_sample=room / max(edge, 0.5))
    return lines


def _run(trial: Trial, line: Line, budget: Budget, chance: Random) -> Outcome:
    """Return how a trial may end in a lane with this line."""
    budget_bytes = budget.budget_bytes
    too_large: list[Point] = []

    def measure(batch: int) -> Point:
        typical = line.fixed_bytes + line.bytes_per_sample * batch
        peak_bytes = max(1, int(typical * math.exp(chance.gauss(0, TUNING.noise))))
        return Point(batch_size=batch, peak_bytes=peak_bytes, step_ms=1.0)

    def fit(batch: int) -> Point | None:
        point = measure(batch)
        if point.peak_bytes <= budget_bytes:
            return point
        too_large.append(point)
        return None

    if isinstance(trial, Climb):
        points = climb(trial.sizes, fit, budget_bytes=budget_bytes)
        if too_large:
            return _over_headroom(too_large[0], points)
        return Climbed(peak_bytes=points[-1].peak_bytes, points=points)
    # A confirm run is longer, and meets the worse of two draws.
    draws = [measure(trial.candidate.batch_size) for _ in range(2 if trial.purpose is Purpose.CONFIRM else 1)]
    own = max(draws, key=lambda point: point.peak_bytes)
    if own.peak_bytes > budget_bytes:
        return _over_headroom(own)
    sizes = () if isinstance(trial, BucketTurns) else trial.further
    further = go_further(sizes, own, fit, budget_bytes=budget_bytes)
    failures = [
        FailedSize(batch_size=point.batch_size, kind=Kind.DEVICE_OOM, peak_bytes=point.peak_bytes)
        for point in too_large
    ]
    return Fitted(
        peak_bytes=own.peak_bytes, step_ms=1.0, further=further, further_failed=failures[0] if failures else None
    )


def _over_headroom(point: Point, fitted: tuple[Point, ...] = ()) -> Failed:
    return Failed(
        kind=Kind.DEVICE_OOM,
        stage=Stage.DONE,
        error=TrialError(code="over_headroom", message=""),
        batch_size=point.batch_size,
        peak_bytes=point.peak_bytes,
        points=fitted,
    )
