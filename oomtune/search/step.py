"""The next batch to try inside one lane.

Every prediction is distrusted: it only chooses where to look inside the bracket that history has proved, and when
several looks have not halved that bracket, the next one is its middle. So at worst this is a binary search.
"""

from __future__ import annotations

from bisect import bisect_left

from oomtune.search.curve import Line
from oomtune.search.evidence import LaneView
from oomtune.search.objective import first_from, last_up_to


def next_batch(
    view: LaneView, *, line: Line | None, trusted: bool, budget_bytes: int, resolution: float, need: int
) -> int:
    """A batch above everything that fitted and below everything that failed; at least `need`, which is worth having.

    `trusted` says that the line goes through two runs in this lane; else part of it is borrowed or assumed.
    """
    top = view.top
    assert top is not None, "a lane with nothing left to try is never asked"
    floor = need if view.low is None else max(need, _above(view, view.low))
    if line is None or _slow(view):
        guess = _middle(view, top)
    elif view.high is None:
        guess = _upwards(view, line.edge(budget_bytes), trusted=trusted, resolution=resolution)
    else:
        guess = _inside(view, top, line.edge(budget_bytes), resolution)
    return min(max(floor, guess), top)


def closes(view: LaneView, batch: int, resolution: float) -> bool:
    """Would this batch, if it fits, be the lane's answer?"""
    return view.top is not None and view.top - batch <= resolution * view.top


def _upwards(view: LaneView, edge: float, *, trusted: bool, resolution: float) -> int:
    """Nothing has failed yet. Just over the edge is the cheapest place to learn it from: within the headroom a trial
    that is too large still runs to its end and gives its peak."""
    share = 1 + 0.4 * resolution if trusted else 1 - 0.5 * resolution
    aim = first_from(view.axis, edge * share) or view.axis[-1]
    if view.low is None:
        return aim
    # Small strides that all fit grow longer, so that a curve that flattens is outrun; while it is flat, they double.
    grown = 1 + max(resolution, 0.005) * 4 ** max(0, _small_strides(view) - 1)
    stride = 2.0 if len(view.peaks) > 1 and not trusted else min(2.0, grown)
    return max(aim, _just_over(view, view.low, resolution), last_up_to(view.axis, view.low * stride) or 0)


def _inside(view: LaneView, top: int, edge: float, resolution: float) -> int:
    """Something failed. If the line says that the edge is just below that, so does the next trial; but each failure
    in a row takes the next one further down."""
    failures = _failures_in_a_row(view)
    under = first_from(view.axis, top * (1 - min(0.5, max(resolution, 0.005) * 3 ** max(0, failures - 1)))) or top
    if view.low is None:
        return min(under, last_up_to(view.axis, edge * (1 - resolution / 2)) or view.axis[0])
    aim = last_up_to(view.axis, edge * (1 - resolution / 2)) or view.axis[0]
    if failures > 1:
        return min(under, max(aim, _above(view, view.low)))
    if closes(view, aim, resolution * 1.1):
        return under
    return max(aim, _just_over(view, view.low, resolution))


def _small_strides(view: LaneView) -> int:
    """How many trials in a row, the last included, fitted and gained less than a tenth or a single unit."""
    count = 0
    for before, batch in zip(view.tried[-2::-1], view.tried[:0:-1], strict=True):
        if batch in view.failed or not before < batch <= max(before * 1.1, _above(view, before)):
            break
        count += 1
    return count


def _failures_in_a_row(view: LaneView) -> int:
    count = 0
    for batch in reversed(view.tried):
        if batch not in view.failed:
            break
        count += 1
    return count


def _just_over(view: LaneView, low: int, resolution: float) -> int:
    """The largest batch whose failure would close the lane."""
    below = last_up_to(view.axis, low / (1 - resolution) if resolution < 1 else low) or low
    return _above(view, below)


def _above(view: LaneView, batch: int) -> int:
    return first_from(view.axis, batch + 1) or view.axis[-1]


def _middle(view: LaneView, top: int) -> int:
    first = 0 if view.low is None else bisect_left(view.axis, view.low) + 1
    return view.axis[(first + bisect_left(view.axis, top)) // 2]


def _slow(view: LaneView) -> bool:
    """Have the last three trials of a bracketed lane failed to halve the bracket?

    Failures in a row go down by ever longer strides, which is a search of its own kind until one fits.
    """
    if view.high is None or len(view.tried) < 4 or 0 < _failures_in_a_row(view) < 4:
        return False
    return _width(view, len(view.tried)) * 2 > _width(view, len(view.tried) - 3)


def _width(view: LaneView, trials: int) -> int:
    """How many batches lay between fit and failure after so many trials."""
    later = set(view.tried[trials:])
    fits = [batch for batch in view.fits if batch not in later]
    low = max(fits, default=0)
    walls = [batch for batch in view.failed if batch not in later and batch > low]
    if view.ceiling is not None and view.ceiling > low:
        walls.append(view.ceiling)
    end = bisect_left(view.axis, min(walls)) if walls else len(view.axis)
    return end - (bisect_left(view.axis, low + 1) if fits else 0)
