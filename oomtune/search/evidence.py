"""What history proves: for each lane what fitted, what did not, and between which batches the edge lies."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from oomtune.domain import (
    Aim,
    Budget,
    Candidate,
    Kind,
    Lane,
    Purpose,
    SearchSpace,
    TrialRecord,
)
from oomtune.search.line import rising_line

# In a lane where nothing has run in a process of its own, this many times the size at which a climb ended may yet fit.
_DOUBTED = 1.1
# Beside a fresh process, only sizes up to this share of its batch count of those that a climb ran.
_CLEAN = 0.5
# When a batch failed in a process of its own, what a climb ran above this share of it is not taken to fit.
_SHAKEN = 0.95
# A batch that failed right after another is doubted when what a fresh process took for a sample leaves room for this
# many times as much.
_REFUTES = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """One lane as history shows it. `peaks` also holds runs that ended over the budget: they measure the curve.
    Of several runs of one batch it holds the largest."""

    lane: Lane
    axis: Sequence[int]
    fits: dict[int, int]
    failed: dict[int, Kind]
    peaks: dict[int, int]
    tried: tuple[tuple[int, ...], ...]
    """The batches of each trial after calibration, in the order they ran."""
    ceiling: int | None
    """A batch that failed at a shorter sequence, and so is taken to fail here."""
    climb_end: int | None = None
    """The size at which a climb ended. Its process had run smaller sizes before."""
    refuted: bool = False
    """Has a fresh process shown that more than `climb_end` fits?"""
    verified: bool = False
    """Has a batch fitted in a process of its own?"""
    foreseen_edge: float | None = None
    """Where the line up to the largest batch, if that fitted in a process of its own, meets the budget."""

    @property
    def low(self) -> int | None:
        """The largest batch that ran and fitted."""
        return max(self.fits, default=None)

    @property
    def reached(self) -> tuple[int, ...]:
        """For each of these trials, the largest batch that fitted in it, or else the one it was for."""
        return tuple(max((batch for batch in sizes if batch in self.fits), default=sizes[0]) for sizes in self.tried)

    @property
    def wall(self) -> int | None:
        """Where a climb ended, as long as no fresh process knows better."""
        return None if self.refuted else self.climb_end

    @property
    def high(self) -> float | None:
        """The smallest batch above `low` that is known not to fit."""
        return self._lowest(self.wall)

    @property
    def top(self) -> int | None:
        """The largest batch that may yet fit; None when none can."""
        return self._below(self.high)

    @property
    def reach(self) -> int | None:
        """The same when the lane is asked whether it can win: a climb's end is doubted until a fresh process ran."""
        if self.wall is None or self.high != self.wall or self.verified:
            return self.top
        return self._below(self._lowest(self.wall * _DOUBTED))

    def _lowest(self, wall: float | None) -> float | None:
        known = (*self.failed, self.ceiling, wall)
        return min((batch for batch in known if batch is not None and batch > (self.low or 0)), default=None)

    def _below(self, bound: float | None) -> int | None:
        end = len(self.axis) if bound is None else bisect_left(self.axis, bound)
        return self.axis[end - 1] if end > 0 else None

    def closes(self, batch: int, resolution: float) -> bool:
        """Would this batch, if it fits, leave none to try that is larger by more than `resolution`?"""
        return self.top is None or self.top - batch <= resolution * self.top

    def closed(self, resolution: float) -> bool:
        """Did something run that did not fit, no further than `resolution` above what did?"""
        return self.top is None or (self.low is not None and self.closes(self.low, resolution))

    def known(self, resolution: float) -> bool:
        """Is the edge known to `resolution`, and not by a climb alone? By a batch that did not fit, or by one that
        fitted and, on a rising curve, left no more room than that."""
        if self.closed(resolution) and self.reach == self.top:
            return True
        if self.low is None or self.foreseen_edge is None or resolution == 0:
            return False
        return self.foreseen_edge - self.low <= resolution * self.foreseen_edge


def lane_views(
    space: SearchSpace, history: Sequence[TrialRecord], budget: Budget, beside: Sequence[Lane] = ()
) -> dict[Lane, LaneView]:
    """Every lane of the space, in order of preference, with what history says of it; then the lanes beside it."""
    by_lane: dict[Lane, list[TrialRecord]] = {}
    for record in for_the_answer(history):
        by_lane.setdefault(record.trial.candidate.lane, []).append(record)
    failed = {lane: _failed(records, budget) for lane, records in by_lane.items()}
    return {
        lane: _view(
            lane, space.batch_sizes, by_lane.get(lane, ()), failed.get(lane, {}), _ceiling(lane, failed), budget
        )
        for lane in dict.fromkeys((*space.lanes(), *beside))
    }


def for_the_answer(history: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Without the trials that are run once it is confirmed: it stays what it is, whatever these show."""
    return [record for record in history if record.trial.aim is Aim.ANSWER]


def _failed(records: Sequence[TrialRecord], budget: Budget) -> dict[int, Kind]:
    """The batches that did not fit, whatever bounded them. A crash is not among them: it is no matter of size; nor
    is the size at which a climb ended: its process had run much smaller ones before. What comes just after a batch near
    to it was seen to need what it needs alone."""
    alone: dict[int, Kind] = {
        record.ended_at.batch_size: record.outcome.kind
        for record in records
        if record.outcome.kind in (Kind.DEVICE_OOM, Kind.HOST_OOM, Kind.TIMEOUT) and not record.outcome.points
    }
    fitted = {
        record.trial.candidate.batch_size
        for record in records
        if record.outcome.kind is Kind.FITS and not record.outcome.points
    }
    after_another = [record.outcome.further_failed for record in records]
    return {
        size.batch_size: size.kind
        for size in after_another
        if size is not None
        and size.batch_size not in fitted
        and not _has_room(records, _REFUTES * size.batch_size, budget)
    } | alone


def _view(
    lane: Lane,
    axis: Sequence[int],
    records: Sequence[TrialRecord],
    failed: dict[int, Kind],
    ceiling: int | None,
    budget: Budget,
) -> LaneView:
    climb_end = _climb_end(records)
    refuted = climb_end is not None and _has_room(records, climb_end, budget)
    fits: dict[int, int] = {}
    alone: dict[int, int] = {}
    climbed: dict[int, int] = {}
    for record in records:
        ran = climbed if record.outcome.points else alone
        for candidate, peak_bytes, _ in measured(record, failed):
            fits[candidate.batch_size] = peak_bytes
            ran[candidate.batch_size] = max(peak_bytes, ran.get(candidate.batch_size, 0))
        batch = record.ended_at.batch_size
        if record.outcome.over_headroom and (not record.outcome.points or (batch == climb_end and not refuted)):
            ran[batch] = max(record.outcome.peak_bytes or 0, ran.get(batch, 0))
        beyond = record.outcome.further_failed
        if beyond is not None and beyond.peak_bytes is not None:
            ran[beyond.batch_size] = max(beyond.peak_bytes, ran.get(beyond.batch_size, 0))
    # A batch that fitted once and failed once, as when a confirm run fails, is one that does not fit.
    fits = {batch: peak for batch, peak in fits.items() if batch not in failed}
    peaks = _best_known(alone, climbed)
    return LaneView(
        lane=lane,
        axis=axis,
        fits=fits,
        failed=failed,
        peaks=peaks,
        tried=tuple(_sizes(record, failed) for record in records if record.trial.purpose is not Purpose.CALIBRATE),
        ceiling=ceiling,
        climb_end=climb_end,
        refuted=refuted,
        verified=any(record.outcome.kind is Kind.FITS and not record.outcome.points for record in records),
        foreseen_edge=_foreseen_edge(max(fits, default=0), alone, peaks, budget),
    )


def _sizes(record: TrialRecord, failed: Collection[int]) -> tuple[int, ...]:
    """The batches of a trial; the one that ended it after others, only where that is not doubted."""
    outcome, last = record.outcome, record.outcome.further_failed
    sizes = (record.trial.candidate.batch_size, *(point.batch_size for point in outcome.further))
    return sizes if last is None or last.batch_size not in failed else (*sizes, last.batch_size)


def _foreseen_edge(largest_fit: int, alone: Collection[int], peaks: Mapping[int, int], budget: Budget) -> float | None:
    if largest_fit not in alone:
        return None
    line = rising_line({batch: peak for batch, peak in peaks.items() if batch <= largest_fit})
    if line is None:
        return None  # a flat stretch just under the budget may go on for long
    in_proportion = largest_fit * budget.budget_bytes / peaks[largest_fit]
    return max(line.edge(budget.budget_bytes), in_proportion)


def _best_known(alone: Mapping[int, int], climbed: Mapping[int, int]) -> dict[int, int]:
    """Peaks of fresh processes, and those of climbs where they add to them: far below, where a climb's process holds
    little yet of the sizes before."""
    bound = _CLEAN * min(alone, default=math.inf)
    return {batch: peak for batch, peak in climbed.items() if batch <= bound} | dict(alone)


def _climb_end(records: Sequence[TrialRecord]) -> int | None:
    climbs = [record for record in records if record.outcome.points and record.outcome.kind is not Kind.FITS]
    return min((record.ended_at.batch_size for record in climbs), default=None)


def _has_room(records: Sequence[TrialRecord], batch: float, budget: Budget) -> bool:
    """Does a fresh process show that more than this batch fits, by what it took for a sample? That rarely rises with
    the batch."""
    alone = [record for record in records if record.outcome.kind is Kind.FITS and not record.outcome.points]
    return any(
        record.trial.candidate.batch_size * budget.budget_bytes > batch * max(1, record.outcome.peak_bytes or 0)
        for record in alone
    )


def _ceiling(lane: Lane, failed: Mapping[Lane, dict[int, Kind]]) -> int | None:
    """A longer sequence never needs less memory, so the smallest failure at a shorter one bounds this lane too."""
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


def measured(record: TrialRecord, failed: Collection[int]) -> Iterator[tuple[Candidate, int, float | None]]:
    """What a record shows to fit. A climb's sizes near one that failed in a process of its own are not among it."""
    outcome = record.outcome
    doubtful = _SHAKEN * min(failed, default=math.inf)
    for point in outcome.points:
        if point.batch_size > doubtful:
            break
        yield record.trial.candidate.lane.at(point.batch_size), point.peak_bytes, point.step_ms
    if outcome.kind is Kind.FITS and outcome.peak_bytes is not None and record.trial.purpose is not Purpose.CALIBRATE:
        yield record.trial.candidate, outcome.peak_bytes, outcome.step_ms
    for point in outcome.further:
        yield record.trial.candidate.lane.at(point.batch_size), point.peak_bytes, point.step_ms
