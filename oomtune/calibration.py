"""How a calibrating trial climbs: which size comes next inside the one process, and when it has seen enough."""

from __future__ import annotations

from collections.abc import Sequence

from oomtune.domain import Point

# A climb looks for a point on the rising line, well below the budget. Only while the curve is flat does it go on
# higher: there is no line yet to predict from.
_TARGET_SHARE = 0.5
_ENOUGH_SHARE = 0.3
_TOO_CLOSE_SHARE = 0.97
# The curve has left its flat part when the peak is this much above that of the smallest size; less may be noise.
_RISEN = 1.3
_FLAT = 1.05
# The second size is this many times the first; no later one leaps further than this many times the one before.
_FIRST_LEAP = 4
_LEAP = 16
# Steps this slow cost more than the point is worth.
_SLOW_STEP_MS = 5_000


def next_size(climb: Sequence[int], points: Sequence[Point], budget_bytes: int) -> int | None:
    """The next of the sizes in `climb` to run, given what the smaller ones showed; None when that is enough."""
    if not points:
        return climb[0]
    last = points[-1]
    risen = last.peak_bytes > _RISEN * points[0].peak_bytes
    enough = _ENOUGH_SHARE if risen else _TOO_CLOSE_SHARE
    if last.peak_bytes >= enough * budget_bytes or last.step_ms > _SLOW_STEP_MS:
        return None
    larger = [size for size in climb if last.batch_size < size <= _reach(points, budget_bytes, risen=risen)]
    return larger[-1] if larger else None


def _reach(points: Sequence[Point], budget_bytes: int, *, risen: bool) -> float:
    last = points[-1]
    flat = len(points) > 1 and last.peak_bytes < _FLAT * points[0].peak_bytes
    if not risen:
        # Memory per sample never rises with the batch: this many times the size stays within the budget. While the
        # curve is flat that is far too careful.
        safe = 0.95 * budget_bytes / max(1, last.peak_bytes)
        return last.batch_size * (_FIRST_LEAP if flat else min(_FIRST_LEAP, max(2, safe)))
    below = next(point for point in reversed(points) if point.peak_bytes * 1.1 < last.peak_bytes)
    slope = (last.peak_bytes - below.peak_bytes) / (last.batch_size - below.batch_size)
    room = _TARGET_SHARE * budget_bytes - last.peak_bytes
    return min(last.batch_size + room / slope, last.batch_size * _LEAP)
