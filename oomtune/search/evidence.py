"""What history proves: for each lane what fitted, what did not, and between which batches the edge lies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from oomtune.domain import Candidate, Fit, FrontierPoint, Kind, Lane, Purpose, SearchSpace, TrialRecord
from oomtune.search.objective import rank


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """One lane as history shows it. `peaks` also holds runs that ended over the budget: they measure the curve."""

    lane: Lane
    axis: Sequence[int]
    fits: dict[int, int] = field(default_factory=dict)
    failed: dict[int, Kind] = field(default_factory=dict)
    peaks: dict[int, int] = field(default_factory=dict)
    tried: tuple[int, ...] = ()
    """Batches of the trials after calibration, in the order they ran."""
    ceiling: int | None = None
    """A batch that failed at a shorter sequence, and so is taken to fail here."""

    @property
    def low(self) -> int | None:
        """The largest batch that ran and fitted."""
        return max(self.fits, default=None)

    @property
    def high(self) -> int | None:
        """The smallest batch above `low` that is known not to fit."""
        walls = [batch for batch in (*self.failed, self.ceiling) if batch is not None and batch > (self.low or 0)]
        return min(walls, default=None)

    @property
    def top(self) -> int | None:
        """The largest batch that may yet fit; None when none can."""
        end = len(self.axis) if self.high is None else bisect_left(self.axis, self.high)
        return self.axis[end - 1] if end > 0 else None

    def closed(self, resolution: float) -> bool:
        """Is the edge known to `resolution`?"""
        if self.top is None:
            return True
        return self.low is not None and self.top - self.low <= resolution * self.top


def lane_views(space: SearchSpace, history: Sequence[TrialRecord]) -> dict[Lane, LaneView]:
    """Every lane of the space, in order of preference, with what history says of it."""
    own = {lane: LaneView(lane=lane, axis=space.batch_sizes) for lane in space.lanes()}
    for record in history:
        view = own.get(record.trial.candidate.lane)
        if view is not None:
            own[view.lane] = _with_record(view, record)
    return {lane: _with_ceiling(view, own) for lane, view in own.items()}


def _with_record(view: LaneView, record: TrialRecord) -> LaneView:
    outcome, batch = record.outcome, record.trial.candidate.batch_size
    fits, failed, peaks, tried = dict(view.fits), dict(view.failed), dict(view.peaks), view.tried
    for point in outcome.points:
        fits[point.batch_size] = peaks[point.batch_size] = point.peak_bytes
    if record.trial.purpose is not Purpose.CALIBRATE:
        tried = (*tried, batch)
        if outcome.peak_bytes is not None and outcome.stage == "done":
            peaks[batch] = max(outcome.peak_bytes, peaks.get(batch, 0))
    if outcome.kind is Kind.FITS and outcome.peak_bytes is not None and record.trial.purpose is not Purpose.CALIBRATE:
        fits[batch] = peaks[batch]
    elif outcome.kind in (Kind.DEVICE_OOM, Kind.HOST_OOM, Kind.TIMEOUT):
        failed[outcome.failed_batch_size or batch] = outcome.kind
    # A batch that fitted once and failed once, as when a confirm run fails, is one that does not fit.
    fits = {size: peak for size, peak in fits.items() if size not in failed}
    return LaneView(lane=view.lane, axis=view.axis, fits=fits, failed=failed, peaks=peaks, tried=tried)


def _with_ceiling(view: LaneView, own: dict[Lane, LaneView]) -> LaneView:
    """A longer sequence never needs less memory, so a failure at a shorter one bounds this lane too."""
    length = view.lane.sequence_length
    if length is None:
        return view
    walls = [
        min(other.failed)
        for lane, other in own.items()
        if other.failed
        and lane.sequence_length is not None
        and lane.sequence_length < length
        and (lane.precision, lane.remat) == (view.lane.precision, view.lane.remat)
    ]
    return LaneView(
        lane=view.lane,
        axis=view.axis,
        fits=view.fits,
        failed=view.failed,
        peaks=view.peaks,
        tried=view.tried,
        ceiling=min(walls, default=None),
    )


def all_fits(history: Sequence[TrialRecord]) -> Iterator[Fit]:
    """Every candidate that ran and fitted and never failed, once, as the first run that showed it saw it."""
    failed = {
        record.trial.candidate.lane.at(record.outcome.failed_batch_size or record.trial.candidate.batch_size)
        for record in history
        if record.outcome.kind is not Kind.FITS
    }
    confirmed = {
        record.trial.candidate: record
        for record in history
        if record.trial.purpose is Purpose.CONFIRM and record.outcome.kind is Kind.FITS
    }
    seen = set(failed)
    for record in history:
        for candidate, peak_bytes, step_ms in _measured(record):
            if candidate not in seen:
                seen.add(candidate)
                yield Fit(
                    candidate=candidate,
                    peak_bytes=peak_bytes,
                    step_ms=step_ms,
                    confirmed_by=confirmed.get(candidate),
                )


def _measured(record: TrialRecord) -> Iterator[tuple[Candidate, int, float | None]]:
    outcome = record.outcome
    for point in outcome.points:
        yield record.trial.candidate.lane.at(point.batch_size), point.peak_bytes, point.step_ms
    if outcome.kind is Kind.FITS and outcome.peak_bytes is not None and record.trial.purpose is not Purpose.CALIBRATE:
        yield record.trial.candidate, outcome.peak_bytes, outcome.step_ms


def best_fit(space: SearchSpace, history: Sequence[TrialRecord]) -> Fit | None:
    """The best by the objective of all that ran and fitted."""
    lanes = set(space.lanes())
    fits = [fit for fit in all_fits(history) if fit.candidate.lane in lanes]
    return max(fits, key=lambda fit: rank(space, fit), default=None)


def frontier(space: SearchSpace, history: Sequence[TrialRecord]) -> tuple[FrontierPoint, ...]:
    """The largest batch that ran and fitted in each lane that was tried."""
    return tuple(
        FrontierPoint(lane=lane, batch_size=view.low, certainty="run" if view.closed(space.resolution) else "partly")
        for lane, view in lane_views(space, history).items()
        if view.low is not None
    )


def next_larger(space: SearchSpace, history: Sequence[TrialRecord], best: Candidate) -> tuple[Candidate, Kind] | None:
    """The smallest batch above the best, in its lane, that was run and did not fit."""
    view = lane_views(space, history).get(best.lane)
    larger = [batch for batch in view.failed if batch > best.batch_size] if view else []
    if view is None or not larger:
        return None
    return best.lane.at(min(larger)), view.failed[min(larger)]
