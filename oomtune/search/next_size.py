"""The next batch to try in one lane.

A belief about the edge chooses where to look inside the bracket that history has proved. Each surprise makes the next
step longer, and when three trials have not halved the bracket, the next one is its middle: at worst this is a binary
search.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from oomtune.search.belief import Belief, believe
from oomtune.search.curves import Line
from oomtune.search.lanes import LaneView
from oomtune.search.tuning import TUNING


def next_batch(
    view: LaneView, *, line: Line | None, spread: float, budget_bytes: int, resolution: float, need: int
) -> int:
    """Return a batch above everything that fitted and below everything that failed, and at least `need`.

    A smaller batch than `need` is not worth having. `line` may be another lane's, and `spread` says how far off its
    edge may be.
    """
    top = view.top
    assert top is not None, "a lane with nothing left to try is never asked"
    if need > top:
        return need  # beyond where a climb ended, which is doubted
    floor = need if view.low is None else max(need, _above(view, view.low))
    if line is None or _is_slow(view):
        guess = _middle(view, top)
    else:
        belief = believe(view, line, spread=spread, budget_bytes=budget_bytes)
        guess = _likely_batch(view, top, belief, resolution, need)
    guess = min(max(floor, guess), top)
    return prefer_even(view.axis, guess, half=view.lane.is_half, least=floor, most=top, resolution=resolution)


def _likely_batch(view: LaneView, top: int, belief: Belief, resolution: float, need: int) -> int:
    """Return the batch that would close the lane if it is likely to fit, else the middle of the belief, moved away from
    the bound that the last trials only inched towards."""
    surprises = _surprises(view)
    if (view.low or 0) < need and belief.at_least(need) < TUNING.sure and surprises <= 0:
        # One trial shows whether the lane can win at all; its edge would take several.
        return need
    if view.high is not None and surprises >= 0:
        closing = first_from(view.axis, top * (1 - resolution)) or top
        closing = prefer_even(
            view.axis, closing, half=view.lane.is_half, least=closing, most=top, resolution=resolution
        )
        if belief.at_least(closing) >= 0.5:
            return closing
    middle = last_up_to(view.axis, belief.quantile(0.5)) or view.axis[0]
    step = max(resolution, TUNING.noise) * TUNING.widening ** abs(surprises)
    if surprises < 0:
        return min(middle, last_up_to(view.axis, top * (1 - step)) or view.axis[0])
    if view.low is None:
        return middle
    longest = first_from(view.axis, 2 * view.low) or view.axis[-1]
    wide = last_up_to(view.axis, view.low * (1 + step)) or view.low if surprises else view.low
    return max(min(max(middle, wide), longest), _just_over(view, view.low, resolution))


def further_batches(view: LaneView, batch: int, resolution: float) -> tuple[int, ...]:
    """Return the larger batches to go on to in the process of this one, if it fits. They cost only their steps.

    The failure of the first would close the lane. They end below the next failure, at twice the batch at most.
    """
    failure = view.larger_failure(batch)
    last = view.axis[-1] if failure is None else view.axis[bisect_left(view.axis, failure) - 1]
    sizes = [batch]
    while sizes[-1] < min(last, 2 * batch):
        above, least = _just_over(view, sizes[-1], resolution), _above(view, sizes[-1])
        sizes.append(
            prefer_even(view.axis, above, half=view.lane.is_half, least=least, most=last, resolution=resolution)
        )
    return tuple(size for size in sizes[1:] if size <= last)


def _surprises(view: LaneView) -> int:
    """Count the surprises in a row, up to the last trial: negative for trials that failed at once, positive for trials
    that fitted all the way after another that did."""
    endings = [view.failed.keys().isdisjoint(sizes) - (sizes[0] in view.failed) for sizes in view.trials]
    streak = sum(1 for _ in itertools.takewhile(lambda ending: ending == endings[-1], reversed(endings)))
    return 0 if not endings else endings[-1] * (streak - (endings[-1] > 0))


def _is_slow(view: LaneView) -> bool:
    """Return whether the last three trials of a bracketed lane have not halved the bracket."""
    count = len(view.trials)
    return view.high is not None and count > 3 and view.width_after(count) * 2 > view.width_after(count - 3)


def _middle(view: LaneView, top: int) -> int:
    first = 0 if view.low is None else bisect_left(view.axis, view.low) + 1
    return view.axis[(first + bisect_left(view.axis, top)) // 2]


def _just_over(view: LaneView, low: int, resolution: float) -> int:
    """Return the largest batch whose failure would close the lane."""
    below = last_up_to(view.axis, low / (1 - resolution) if resolution < 1 else low) or low
    return _above(view, below)


def _above(view: LaneView, batch: int) -> int:
    return first_from(view.axis, batch + 1) or view.axis[-1]


def first_from(axis: Sequence[int], bound: float) -> int | None:
    """Return the smallest size on the axis that is not below the bound."""
    index = bisect_left(axis, bound)
    return axis[index] if index < len(axis) else None


def last_up_to(axis: Sequence[int], bound: float) -> int | None:
    """Return the largest size on the axis that is not above the bound."""
    index = bisect_right(axis, bound)
    return axis[index - 1] if index > 0 else None


def prefer_even(axis: Sequence[int], size: int, *, half: bool, least: int, most: int, resolution: float) -> int:
    """Return the size, or in half precision an even one beside it where a difference of one is below the resolution.

    An odd batch of an LSTM in half precision takes 6 to 9 % more memory than the even ones beside it.
    """
    if half and size % 2 and resolution * size > TUNING.even_from:
        for near in (size - 1, size + 1):
            if least <= near <= most and near in axis:
                return near
    return size
