"""How much is still to do: the search played to its end against what the curves known so far leave possible."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
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
    Outcome,
    Point,
    Purpose,
    SearchSpace,
    Stage,
    Trial,
    TrialError,
    TrialRecord,
)
from oomtune.search.climb import next_further, next_size
from oomtune.search.forecast.imagined import imagined_lines
from oomtune.search.forecast.pace import pace_of
from oomtune.search.line import Line
from oomtune.search.order import next_trial_of_all

_MOST_TRIALS = 60
# Playing the search through more lanes than this would take longer than it is worth to know.
_MOST_LANES = 60
_PLAYS = 9
# How far one run of a batch lies from another.
_RUN_NOISE = 0.02


def time_ahead_s(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> float | None:
    """What may remain, at what trials have taken so far: of several plays of the search to its end, the time that comes
    within a factor of two of the most of them. None when nothing can be said."""
    if not history or len(space.lanes()) > _MOST_LANES:
        return None
    pace = pace_of(history, space.confirm_steps)
    plays = [
        sum(pace.seconds(record) for record in _play(space, budget, history, Random(seed)))  # noqa: S311
        for seed in range(_PLAYS)
    ]
    middle = statistics.median(plays)
    # The most plays lie within a factor of two of a guess that has the shortest of them at its lower end.
    guesses = (*plays, *(2 * play for play in plays))
    return max(guesses, key=lambda guess: (sum(guess <= 2 * play <= 4 * guess for play in plays), -abs(guess - middle)))


def _play(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord], chance: Random) -> list[TrialRecord]:
    """The trials that may follow."""
    lines = imagined_lines(space, budget, history, chance)
    played = list(history)
    while len(played) - len(history) < _MOST_TRIALS:
        trial = next_trial_of_all(space, budget, played)
        if trial is None:
            break
        lane = trial.candidate.lane
        if lane not in lines:  # a bucket's: they are known when the answer is
            lines |= imagined_lines(space, budget, played, chance, beside=[lane])
        outcome = _outcome(trial, lines[lane], budget, chance)
        played.append(TrialRecord(number=len(played) + 1, trial=trial, outcome=outcome))
    return played[len(history) :]


def _outcome(trial: Trial, line: Line, budget: Budget, chance: Random) -> Outcome:
    def peak(batch: int) -> int:
        typical = line.fixed_bytes + line.bytes_per_sample * batch
        return max(1, int(typical * math.exp(chance.gauss(0, _RUN_NOISE))))

    if isinstance(trial, Climb):
        return _climb(trial, peak, budget)
    runs = 2 if trial.purpose is Purpose.CONFIRM else 1
    peak_bytes = max(peak(trial.candidate.batch_size) for _ in range(runs))
    own = Point(batch_size=trial.candidate.batch_size, peak_bytes=peak_bytes, step_ms=1.0)
    sizes = () if isinstance(trial, BucketTurns) else trial.further
    further, failed = _run(lambda points: next_further(sizes, [own, *points], budget.budget_bytes), peak, budget)
    if peak_bytes > budget.budget_bytes:
        return _over_headroom(trial.candidate.batch_size, peak_bytes)
    return Fitted(peak_bytes=peak_bytes, step_ms=1.0, further=further, further_failed=failed)


def _climb(trial: Climb, peak: Callable[[int], int], budget: Budget) -> Outcome:
    points, failed = _run(lambda points: next_size(trial.sizes, points, budget.budget_bytes), peak, budget)
    if failed is not None:
        return replace(_over_headroom(failed.batch_size, failed.peak_bytes), points=points, step_ms=None)
    return Climbed(peak_bytes=points[-1].peak_bytes, points=points)


def _over_headroom(batch_size: int, peak_bytes: int | None) -> Failed:
    error = TrialError(code="over_headroom", message="")
    return Failed(
        kind=Kind.DEVICE_OOM, stage=Stage.DONE, error=error, batch_size=batch_size, peak_bytes=peak_bytes, step_ms=1.0
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
