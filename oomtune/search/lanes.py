"""What history proves of each lane: what fitted, what did not, and between which batches the edge lies."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oomtune.domain import (
    Aim,
    BucketTurns,
    Budget,
    Kind,
    Lane,
    Provenance,
    Purpose,
    Run,
    SearchSpace,
    TrialRecord,
    runs_of,
)
from oomtune.search.curves import Line, rising_line
from oomtune.search.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The part of history that counts: the records, and every size that ran in them."""

    records: tuple[TrialRecord, ...]
    runs: tuple[Run, ...]

    @classmethod
    def for_answer(cls, history: Iterable[TrialRecord]) -> Evidence:
        """Leave out the trials that follow a confirmed answer, so that they can't change it."""
        return cls._of(record for record in history if record.trial.aim is Aim.ANSWER)

    @classmethod
    def of_single_lanes(cls, history: Iterable[TrialRecord]) -> Evidence:
        """Take all trials in which one lane ran, whatever they were for."""
        return cls._of(record for record in history if not isinstance(record.trial, BucketTurns))

    @classmethod
    def _of(cls, records: Iterable[TrialRecord]) -> Evidence:
        counted = tuple(records)
        return cls(records=counted, runs=tuple(runs_of(counted)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """One lane as history shows it."""

    lane: Lane
    axis: Sequence[int]
    fits: frozenset[int]
    failed: dict[int, Kind]
    peaks: dict[int, int]
    """The largest peak of each batch that ran, also over the budget. Runs in a climb count only below all others."""
    trials: tuple[tuple[int, ...], ...] = ()
    """The batches that each trial after the climb ran, in order."""
    ceiling: int | None = None
    """A batch that failed at a shorter sequence and so can't fit here."""
    climb_end: int | None = None
    """Where a climb ended, unless a fresh process has shown room for more. It bounds the lane, but is doubted."""
    has_fresh_fit: bool = False
    predicted_edge: float | None = None
    """Where the line up to the largest fit meets the budget, if that fit was not in a climb."""

    @property
    def begun(self) -> bool:
        return bool(self.peaks or self.failed)

    @property
    def low(self) -> int | None:
        """The largest batch that ran and fitted."""
        return max(self.fits, default=None)

    @property
    def high(self) -> int | None:
        """The smallest batch above `low` that is taken not to fit."""
        return self._bound_above(self.low or 0, self.climb_end)

    @property
    def top(self) -> int | None:
        """The largest batch that may yet fit; None when none can."""
        return self._last_below(self.high)

    @property
    def reach(self) -> int | None:
        """The largest batch that may fit where a climb's end is doubted, as long as no fresh process has fitted."""
        if self.climb_end is None or self.high != self.climb_end or self.has_fresh_fit:
            return self.top
        return self._last_below(self._bound_above(self.low or 0, math.ceil(self.climb_end * TUNING.climb_doubt)))

    def larger_failure(self, batch: int) -> int | None:
        """Return the smallest larger batch that failed in a trial other than a climb."""
        return self._bound_above(batch, None)

    def closes(self, batch: int, resolution: float) -> bool:
        """Return whether this batch, if it fits, leaves none to try that is larger by more than `resolution`."""
        return self.top is None or self.top - batch <= resolution * self.top

    def is_closed(self, resolution: float) -> bool:
        """Return whether something failed no further than `resolution` above what fitted."""
        return self.top is None or (self.low is not None and self.closes(self.low, resolution))

    def edge_is_known(self, resolution: float) -> bool:
        """Return whether the lane is closed, and not by the doubted end of a climb; or whether the largest fit leaves
        no more room on a rising curve than the resolution."""
        if self.is_closed(resolution) and self.reach == self.top:
            return True
        if self.low is None or self.predicted_edge is None or resolution == 0:
            return False
        return self.predicted_edge - self.low <= resolution * self.predicted_edge

    def width_after(self, count: int) -> int:
        """Return how many batches lay between fit and failure after the first `count` trials."""
        later = set(itertools.chain.from_iterable(self.trials[count:]))
        low = max(self.fits - later, default=0)
        walls = [batch for batch in (*(self.failed.keys() - later), self.ceiling) if batch is not None and batch > low]
        end = bisect_left(self.axis, min(walls)) if walls else len(self.axis)
        return end - bisect_left(self.axis, low + 1)

    def _bound_above(self, batch: int, climb_end: int | None) -> int | None:
        walls = (*self.failed, self.ceiling, climb_end)
        return min((wall for wall in walls if wall is not None and wall > batch), default=None)

    def _last_below(self, bound: int | None) -> int | None:
        end = len(self.axis) if bound is None else bisect_left(self.axis, bound)
        return self.axis[end - 1] if end > 0 else None


def lane_views(
    space: SearchSpace, history: Sequence[TrialRecord], budget: Budget, beside: Sequence[Lane] = ()
) -> dict[Lane, LaneView]:
    """Return what the trials for the answer show of every lane of the space, most preferred first, then of `beside`."""
    return views_of(space, Evidence.for_answer(history), budget, beside)


def views_of(
    space: SearchSpace, evidence: Evidence, budget: Budget, beside: Sequence[Lane] = ()
) -> dict[Lane, LaneView]:
    by_lane: dict[Lane, list[Run]] = {}
    for run in evidence.runs:
        by_lane.setdefault(run.candidate.lane, []).append(run)
    failed = {lane: _failed(runs, budget) for lane, runs in by_lane.items()}
    return {
        lane: _view(
            lane, space.batch_sizes, by_lane.get(lane, ()), failed.get(lane, {}), _ceiling(lane, failed), budget
        )
        for lane in dict.fromkeys((*space.lanes(), *beside))
    }


def lane_lines(views: Mapping[Lane, LaneView]) -> dict[Lane, Line]:
    """Return the line of every lane that has shown one."""
    lines = {lane: rising_line(view.peaks) for lane, view in views.items()}
    return {lane: line for lane, line in lines.items() if line is not None}


def _failed(runs: Sequence[Run], budget: Budget) -> dict[int, Kind]:
    """Return the batches that did not fit, whatever bounded them.

    A crash is not among them, because it has nothing to do with size; nor is the end of a climb, whose process had run
    much smaller sizes. A failure just after a batch close to it counts, unless a fresh process shows room for more.
    """
    fresh = [run for run in runs if run.provenance is Provenance.FRESH_PROCESS]
    fitted = {run.candidate.batch_size for run in fresh if run.fits}
    after_another = {
        run.candidate.batch_size: run.kind
        for run in runs
        if run.provenance is Provenance.AFTER_NEIGHBOUR
        and not run.fits
        and run.candidate.batch_size not in fitted
        and not _has_room(runs, TUNING.room_doubt * run.candidate.batch_size, budget)
    }
    alone = {run.candidate.batch_size: run.kind for run in fresh if not run.fits and run.kind is not Kind.CRASH}
    return after_another | alone


def _has_room(runs: Sequence[Run], batch: float, budget: Budget) -> bool:
    """Return whether a fresh process shows that more than this batch fits, by what it took for a sample. Memory per
    sample rarely rises with the batch."""
    return any(
        run.candidate.batch_size * budget.budget_bytes > batch * max(1, run.peak_bytes or 0)
        for run in runs
        if run.fits and run.provenance is Provenance.FRESH_PROCESS
    )


def _view(
    lane: Lane,
    axis: Sequence[int],
    runs: Sequence[Run],
    failed: dict[int, Kind],
    ceiling: int | None,
    budget: Budget,
) -> LaneView:
    climb_end = min(
        (run.candidate.batch_size for run in runs if run.provenance is Provenance.IN_CLIMB and not run.fits),
        default=None,
    )
    if climb_end is not None and _has_room(runs, climb_end, budget):
        climb_end = None
    counted = [run for run in runs if not run.fits or shows_fit(run, failed)]
    # A batch that fitted once and failed once, as when a confirm run fails, does not fit.
    fits = frozenset(run.candidate.batch_size for run in counted if run.fits) - failed.keys()
    peaks = _peaks(counted, climb_end)
    return LaneView(
        lane=lane,
        axis=axis,
        fits=fits,
        failed=failed,
        peaks=peaks,
        predicted_edge=_predicted_edge(fits, runs, peaks, budget),
        trials=_trials(runs, failed),
        ceiling=ceiling,
        climb_end=climb_end,
        has_fresh_fit=any(run.fits and run.provenance is Provenance.FRESH_PROCESS for run in runs),
    )


def shows_fit(run: Run, failed: Collection[int]) -> bool:
    """Return whether a run that fitted proves that its size fits. In a climb, sizes near a fresh failure do not."""
    near_failure = TUNING.climb_trust * min(failed, default=math.inf)
    return run.fits and (run.provenance is not Provenance.IN_CLIMB or run.candidate.batch_size <= near_failure)


def _peaks(runs: Sequence[Run], climb_end: int | None) -> dict[int, int]:
    alone: dict[int, int] = {}
    climbed: dict[int, int] = {}
    for run in runs:
        batch, in_climb = run.candidate.batch_size, run.provenance is Provenance.IN_CLIMB
        if run.peak_bytes is not None and (run.fits or (run.over_headroom and (not in_climb or batch == climb_end))):
            peaks = climbed if in_climb else alone
            peaks[batch] = max(run.peak_bytes, peaks.get(batch, 0))
    smallest = min(alone, default=math.inf)
    return {batch: peak for batch, peak in climbed.items() if batch <= smallest} | alone


def _predicted_edge(
    fits: Collection[int], runs: Sequence[Run], peaks: Mapping[int, int], budget: Budget
) -> float | None:
    low = max(fits, default=0)
    ran_apart = (run for run in runs if run.fits and run.provenance is not Provenance.IN_CLIMB)
    if not any(run.candidate.batch_size == low for run in ran_apart):
        return None
    line = rising_line({batch: peak for batch, peak in peaks.items() if batch <= low})
    if line is None:
        return None  # a flat stretch just under the budget may go on for long
    in_proportion = low * budget.budget_bytes / peaks[low]
    return max(line.edge(budget.budget_bytes), in_proportion)


def _trials(runs: Sequence[Run], failed: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """Return the batches of each trial after the climb, without failures after another size that are doubted."""
    after_climb = [run for run in runs if run.purpose is not Purpose.CALIBRATE]
    return tuple(
        tuple(
            run.candidate.batch_size
            for run in trial
            if run.fits or run.provenance is Provenance.FRESH_PROCESS or run.candidate.batch_size in failed
        )
        for _, trial in itertools.groupby(after_climb, key=lambda run: run.trial_number)
    )


def _ceiling(lane: Lane, failed: Mapping[Lane, dict[int, Kind]]) -> int | None:
    """Return the smallest failure at a shorter sequence. A longer one never needs less memory."""
    if lane.sequence_length is None:
        return None
    walls = [
        min(batches)
        for other, batches in failed.items()
        if batches
        and (other.precision, other.kind) == (lane.precision, lane.kind)
        and other.sequence_length is not None
        and other.sequence_length < lane.sequence_length
    ]
    return min(walls, default=None)
