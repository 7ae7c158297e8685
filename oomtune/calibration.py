"""How a calibrating trial climbs: which size comes next inside the one process, and when it has seen enough."""

from __future__ import annotations

from collections.abc import Sequence

from oomtune.domain import Point

# A climb looks for a point on the rising line, well below the budget: an out-of-memory error here would cost the
# points that the process still had to give.
_TARGET_SHARE = 0.5
_ENOUGH_SHARE = 0.3
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
    if last.peak_bytes >= _ENOUGH_SHARE * budget_bytes or last.step_ms > _SLOW_STEP_MS:
        return None
    reach = last.batch_size * _FIRST_LEAP
    if len(points) > 1:
        previous = points[-2]
        slope = (last.peak_bytes - previous.peak_bytes) / (last.batch_size - previous.batch_size)
        if slope > 0:
            room = _TARGET_SHARE * budget_bytes - last.peak_bytes
            reach = int(min(last.batch_size + room / slope, last.batch_size * _LEAP))
    larger = [size for size in climb if last.batch_size < size <= reach]
    return larger[-1] if larger else None
