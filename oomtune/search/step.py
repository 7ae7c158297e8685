"""The next batch to try inside one lane.

Every prediction is distrusted: it only chooses where to look inside the bracket that history has proved, and when
several looks have not halved that bracket, the next one is its middle. So at worst this is a binary search.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable

from oomtune.search.axis import first_from, last_up_to, settled
from oomtune.search.belief import Belief, believe
from oomtune.search.evidence import LaneView
from oomtune.search.line import Line, rising_line

# Going up, the batch aimed at is about as likely to fit as not: the edge lies below it with this likelihood.
_EVEN_ODDS = 0.55
# A step past where a climb ended, when that was refuted, is at first no longer than this.
_PAST = 1.15
# A lane that is less likely than this to win is asked just that.
_LIKELY = 0.8
# After this many strides without a rise of the peak to speak of the curve is level. The next stride makes the batch
# this many times as large, the one after it twice that often, and so on.
_LEVEL = 2
_LEAP = 1.25
# What is no rise to speak of, beside one in proportion to the batch.
_RISE = 0.5
# How many times as large a batch a trial may go on to.
_FURTHEST = 2
# A batch that would be the answer is run when it is not much less likely to fit than not.
_GOOD_ENOUGH = 0.35


def next_batch(
    view: LaneView, *, line: Line | None, spread: float, budget_bytes: int, resolution: float, need: int
) -> int:
    """A batch above everything that fitted and below everything that failed; at least `need`, which is worth having.

    Without a line of its own, a lane's is borrowed or assumed; `spread` says how far off that may be.
    """
    top = view.top
    assert top is not None, "a lane with nothing left to try is never asked"
    if need > top:
        return need  # beyond where a climb ended, which is doubted
    floor = need if view.low is None else max(need, _above(view, view.low))
    if line is None or _slow(view) or (view.high is not None and _level_strides(view) >= _LEVEL):
        guess = _middle(view, top)
    else:
        belief = edge_belief(view, line, spread=spread, budget_bytes=budget_bytes)
        if (view.low or 0) < need and belief.at_least(need) < _LIKELY and _small_strides(view) < 2:
            # Whether the lane can win at all is one trial; where it ends would be several.
            guess = need
        elif view.high is None:
            guess = _upwards(view, belief, resolution)
        else:
            guess = _inside(view, top, belief, resolution)
    return settled(
        view.axis, min(max(floor, guess), top), half=view.lane.half, least=floor, most=top, resolution=resolution
    )


def edge_belief(view: LaneView, line: Line, *, spread: float, budget_bytes: int) -> Belief:
    """Where this lane's edge is thought to lie, between what fitted and what failed in it."""
    return believe(
        view.peaks,
        line,
        spread=spread,
        trusted=rising_line(view.peaks) is not None,
        budget_bytes=budget_bytes,
        low=float(view.low or view.axis[0] * 0.5),
        high=float(view.high or view.axis[-1] * 1.5),
        walled=view.high is not None and view.high not in view.peaks,
        climbed=not any(batch in view.peaks for sizes in view.tried for batch in sizes),
    )


def further_batches(view: LaneView, batch: int, resolution: float) -> tuple[int, ...]:
    """The larger batches to go on to in the process of this one, if it fits: the first would close the lane if it does
    not. They cost only their steps, and a process that has just run a batch near by is as good as a fresh one."""
    known = [wall for wall in (*view.failed, view.ceiling) if wall is not None and wall > batch]
    last = view.axis[-1] if not known else (view.axis[bisect_left(view.axis, min(known)) - 1])
    sizes = [batch]
    while sizes[-1] < min(last, _FURTHEST * batch):
        above = _just_over(view, sizes[-1], resolution)
        least = _above(view, sizes[-1])
        sizes.append(settled(view.axis, above, half=view.lane.half, least=least, most=last, resolution=resolution))
    return tuple(size for size in sizes[1:] if size <= last)


def _upwards(view: LaneView, belief: Belief, resolution: float) -> int:
    """Nothing has failed yet: go to the edge. While the curve is flat there is no edge to see: double."""
    aim = first_from(view.axis, belief.quantile(_EVEN_ODDS)) or view.axis[-1]
    if view.low is None:
        return aim
    # Small strides that all fit grow longer, so that a curve that rises in steps is outrun.
    grown = 1 + max(resolution, 0.005) * 4 ** max(0, _small_strides(view) - 1)
    # On a level stretch the peak says nothing of where it ends.
    beyond = _level_strides(view) - _LEVEL
    leap = _LEAP**2 ** min(beyond, 2) if beyond >= 0 else 1.0
    stride = 2.0 if len(view.peaks) > 1 and rising_line(view.peaks) is None else min(2.0, max(grown, leap))
    aim = max(aim, last_up_to(view.axis, view.low * stride) or 0)
    if view.climb_end is not None and view.low < view.climb_end:
        aim = min(aim, last_up_to(view.axis, view.climb_end * _PAST) or aim)
    return max(min(aim, first_from(view.axis, view.low * 2) or view.axis[-1]), _just_over(view, view.low, resolution))


def _inside(view: LaneView, top: int, belief: Belief, resolution: float) -> int:
    """Something failed. The smallest batch that would close the lane, if it is likely enough to fit; else the middle of
    what is believed."""
    under = first_from(view.axis, top * (1 - resolution)) or top
    under = settled(view.axis, under, half=view.lane.half, least=under, most=top, resolution=resolution)
    falls = _small_falls(view)
    if not falls and belief.at_least(under) >= _GOOD_ENOUGH:
        return under
    # What is believed was too high time and again: come down faster each time.
    bound = top * (1 - resolution * 2**falls) if falls else top
    aim = last_up_to(view.axis, min(belief.quantile(0.5), bound)) or view.axis[0]
    if view.low is None:
        return aim
    return max(aim, _just_over(view, view.low, resolution))


def _small_strides(view: LaneView) -> int:
    """How many trials in a row, the last included, fitted and gained less than a tenth or a single unit."""
    return _in_a_row(
        view,
        lambda before, batch: batch not in view.failed and before < batch <= max(before * 1.1, _above(view, before)),
    )


def _level_strides(view: LaneView) -> int:
    """From how many batches to the next larger one, counted from the largest, the peak did not rise to speak of; of
    the largest that each trial came to."""
    ran = sorted({batch for batch in view.reached if batch in view.fits}, reverse=True)

    def level(larger: int, smaller: int) -> bool:
        in_proportion = (larger / smaller - 1) * view.peaks[smaller]
        return view.peaks[larger] - view.peaks[smaller] < _RISE * in_proportion

    return sum(1 for _ in itertools.takewhile(lambda pair: level(*pair), itertools.pairwise(ran)))


def _small_falls(view: LaneView) -> int:
    """How many trials in a row, the last included, failed less than a fifth below one that failed."""
    return _in_a_row(
        view, lambda before, batch: {before, batch} <= view.failed.keys() and before * 0.8 <= batch < before
    )


def _in_a_row(view: LaneView, holds: Callable[[int, int], bool]) -> int:
    """Of how many trials, counted from the last, this holds with the one before each."""
    reached = view.reached
    pairs = zip(reached[-2::-1], reached[:0:-1], strict=True)
    return sum(1 for _ in itertools.takewhile(lambda pair: holds(*pair), pairs))


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
    """Have the last three trials of a bracketed lane failed to halve the bracket?"""
    if view.high is None or len(view.tried) < 4:
        return False
    return _width(view, len(view.tried)) * 2 > _width(view, len(view.tried) - 3)


def _width(view: LaneView, trials: int) -> int:
    """How many batches lay between fit and failure after so many trials."""
    later = set(itertools.chain.from_iterable(view.tried[trials:]))
    fits = [batch for batch in view.fits if batch not in later]
    low = max(fits, default=0)
    walls = [batch for batch in view.failed if batch not in later and batch > low]
    if view.ceiling is not None and view.ceiling > low:
        walls.append(view.ceiling)
    end = bisect_left(view.axis, min(walls)) if walls else len(view.axis)
    return end - (bisect_left(view.axis, low + 1) if fits else 0)
