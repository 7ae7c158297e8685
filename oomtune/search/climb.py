"""How a calibrating trial climbs: which size comes next inside the one process, and when it has seen enough.

A size costs only its steps here, where a trial of its own would build and trace the model again. So the climb goes
all the way: out of the flat part, along the rising line to near the budget, and then just over it. Where it ends is a
strong hint and no proof: a process that has run smaller sizes may need more than a fresh one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from oomtune.domain import Point

# Below the first share of the budget the climb goes on to the second. From far away the line may still hold some of
# the flat part; only from near by is the edge seen well enough to step just over it.
_HOPS = ((0.4, 0.6), (0.75, 0.85), (0.9, 0.94), (0.96, 0.98))
# Just over the edge: within the headroom a size that is too large still runs and shows its peak.
_JUST_OVER = 1.004
# The curve has left its flat part when the peak is this much above that of the smallest size; less may be noise.
_RISEN = 1.3
_FLAT = 1.05
# Too near to the budget to double a size on a flat curve.
_TOO_CLOSE_SHARE = 0.97
# The second size is this many times the first; no later one leaps further than this many times the one before, and
# none in the upper half of the budget further than the third: a curve may turn steeper there.
_FIRST_LEAP = 4
_LEAP = 16
_LAST_LEAP = 1.25
# Steps this slow cost more than the point is worth.
_SLOW_STEP_MS = 5_000
_MOST_POINTS = 16
_MOST_FURTHER = 6
_MOST_FROM_AFAR = 12


def next_size(climb: Sequence[int], points: Sequence[Point], budget_bytes: int, *, every: bool = False) -> int | None:
    """The next of the sizes in `climb` to run, given what the smaller ones showed; None when that is enough. With
    `every`, none of them is left out below the budget."""
    if not points:
        return climb[0]
    last = points[-1]
    larger = [size for size in climb if size > last.batch_size]
    if every:
        return larger[0] if larger and last.peak_bytes <= budget_bytes else None
    if not larger or last.peak_bytes > budget_bytes or last.step_ms > _SLOW_STEP_MS or len(points) >= _MOST_POINTS:
        return None
    if last.peak_bytes <= _RISEN * points[0].peak_bytes:
        return _on_the_flat(larger, points, budget_bytes)
    below = next(point for point in reversed(points) if point.peak_bytes * 1.1 < last.peak_bytes)
    slope = (last.peak_bytes - below.peak_bytes) / (last.batch_size - below.batch_size)
    for seen, target in _HOPS:
        if last.peak_bytes < seen * budget_bytes:
            reach = last.batch_size + (target * budget_bytes - last.peak_bytes) / slope
            leap = _LEAP if last.peak_bytes < _HOPS[0][0] * budget_bytes else _LAST_LEAP
            return _largest_up_to(min(reach, last.batch_size * leap), larger) or larger[0]
    over = (last.batch_size + (budget_bytes - last.peak_bytes) / slope) * _JUST_OVER
    return next((size for size in larger if size >= min(over, last.batch_size * _LAST_LEAP)), larger[-1])


def next_further(
    sizes: Sequence[int], points: Sequence[Point], budget_bytes: int, *, from_afar: bool = False
) -> int | None:
    """The next of `sizes` to go on to after those that ran, of which the last has fitted; None when that is enough."""
    last = points[-1]
    larger = [size for size in sizes if size > last.batch_size]
    if not larger or last.peak_bytes > budget_bytes or len(points) > (_MOST_FROM_AFAR if from_afar else _MOST_FURTHER):
        return None
    # Memory per sample never rises with the batch, so this many times the size fits too.
    room = budget_bytes / max(1, last.peak_bytes)
    # From afar that is not to be trusted: chunks are used again in other ways, and the first size that fails is the
    # last of its process. Half of the way at a time, each of the sizes near the edge also comes after one near to it.
    return _largest_up_to(last.batch_size * (math.sqrt(room) if from_afar else room), larger) or larger[0]


def _on_the_flat(larger: Sequence[int], points: Sequence[Point], budget_bytes: int) -> int | None:
    last = points[-1]
    if last.peak_bytes >= _TOO_CLOSE_SHARE * budget_bytes:
        return None
    flat = len(points) > 1 and last.peak_bytes < _FLAT * points[0].peak_bytes
    # Memory per sample never rises with the batch: this many times the size stays within the budget. While the curve
    # is flat that is far too careful.
    safe = 0.95 * budget_bytes / max(1, last.peak_bytes)
    return _largest_up_to(last.batch_size * (_FIRST_LEAP if flat else min(_FIRST_LEAP, max(2, safe))), larger)


def _largest_up_to(bound: float, sizes: Sequence[int]) -> int | None:
    return max((size for size in sizes if size <= bound), default=None)
