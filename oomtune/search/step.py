"""The next batch to try inside one lane.

Every prediction is distrusted: it only chooses where to look inside the bracket that history has proved, and when two
looks in a row have not halved that bracket, the next one is its middle. So at worst this is a binary search.
"""

from __future__ import annotations

from bisect import bisect_left

from oomtune.search.curve import Line
from oomtune.search.evidence import LaneView
from oomtune.search.objective import first_from, last_up_to


def next_batch(view: LaneView, *, line: Line | None, budget_bytes: int, resolution: float, need: int) -> int:
    """A batch above everything that fitted and below everything that failed; at least `need`, which is worth having."""
    top = view.top
    assert top is not None and need <= top, "a lane with nothing left to try is never asked"
    floor = need if view.low is None else max(need, _above(view, view.low))
    if _slow(view):
        return max(floor, _middle(view, top))
    guess = _look(view, top, line, budget_bytes, resolution)
    return min(max(floor, guess), top)


def _look(view: LaneView, top: int, line: Line | None, budget_bytes: int, resolution: float) -> int:
    if line is None:
        return _middle(view, top)
    edge = line.edge(budget_bytes)
    aim = last_up_to(view.axis, edge * (1 - resolution / 2)) or view.axis[0]
    if view.low is None:
        return aim if aim <= top else _middle(view, top)
    over = _just_over(view, view.low, resolution)
    if view.high is None:
        # Each fit beyond the prediction makes the next stride longer, so a curve that flattens is outrun.
        stride = view.low * min(2.0, 1 + max(resolution, 0.005) * 4 ** (len(view.tried) - 1))
        past = first_from(view.axis, stride) or top
        return max(aim, over if len(view.tried) < 2 else past)
    if aim >= top:
        return _just_under(view, top, resolution)
    return max(aim, over)


def _just_over(view: LaneView, low: int, resolution: float) -> int:
    """The largest batch whose failure would close the lane."""
    below = last_up_to(view.axis, low / (1 - resolution) if resolution < 1 else low) or low
    return _above(view, below)


def _just_under(view: LaneView, top: int, resolution: float) -> int:
    """The smallest batch whose fit would close the lane."""
    return first_from(view.axis, top * (1 - resolution)) or top


def _above(view: LaneView, batch: int) -> int:
    return first_from(view.axis, batch + 1) or view.axis[-1]


def _middle(view: LaneView, top: int) -> int:
    first = 0 if view.low is None else bisect_left(view.axis, view.low) + 1
    return view.axis[(first + bisect_left(view.axis, top)) // 2]


def _slow(view: LaneView) -> bool:
    """Have the last two trials of a bracketed lane failed to halve the bracket?"""
    if view.high is None or len(view.tried) < 3:
        return False
    return _width(view, len(view.tried)) * 2 > _width(view, len(view.tried) - 2)


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
