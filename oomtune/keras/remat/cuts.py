"""Decide where to cut a chain of steps so that recomputing its parts saves the most memory. Pure, without TensorFlow.

While the backward pass is in one part, memory holds everything that crosses the cuts before it and everything inside
the part. Many cuts make small parts; few cuts keep less between them. The best number depends on the sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

# A part must hold this many times more inside than it hands on, or recomputing it is not worth the time.
_MIN_GAIN = 1.25
# Leave a model alone if the estimate saves less than this share. Inside a part the bar is higher, because the part
# could also be recomputed as a whole.
_MIN_SAVED, _MIN_SAVED_INSIDE = 0.1, 0.5
# Each allowance for the size of a part is this many times the one before.
_ALLOWANCE_RATIO = 1.25
# Sizes are estimates. Among cuttings within this factor of the best, take the one with the fewest parts.
_CLOSE = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One layer or operation, in execution order."""

    inside_bytes: int
    """What it keeps for the backward pass, including its results."""
    results: tuple[tuple[int, int], ...]
    """The bytes of each result, and the index of the last step that uses it."""
    repeatable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    start: int
    stop: int
    again: bool
    """Whether the backward pass recomputes this part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cutting:
    parts: list[Part]
    peak_bytes: int


def parts(steps: Sequence[Step], *, ends_the_model: bool) -> list[Part]:
    """Divide the steps into parts, and mark the parts to recompute. Recompute nothing if that saves too little.

    The last part of a model is never recomputed: its backward pass starts right where its forward pass ends.
    """
    whole_bytes = sum(step.inside_bytes for step in steps)
    min_saved = _MIN_SAVED if ends_the_model else _MIN_SAVED_INSIDE
    cuttings = [_measure(steps, _cut(steps, allowed), ends_the_model) for allowed in _allowances(steps, whole_bytes)]
    least_bytes = min((cutting.peak_bytes for cutting in cuttings), default=0)
    if least_bytes >= (1 - min_saved) * whole_bytes:
        return [Part(start=0, stop=len(steps), again=False)]
    close = [cutting for cutting in cuttings if cutting.peak_bytes <= _CLOSE * least_bytes]
    return min(close, key=lambda cutting: len(cutting.parts)).parts


def _allowances(steps: Sequence[Step], whole_bytes: int) -> list[float]:
    """List how much one part may hold: from the largest single step, which can't be cut, to half of everything."""
    largest = max((step.inside_bytes for step in steps), default=0)
    powers = math.log(whole_bytes / 2 / largest, _ALLOWANCE_RATIO) if largest and whole_bytes > 2 * largest else 0
    return [largest * _ALLOWANCE_RATIO**power for power in range(math.ceil(powers) + 1)]


def _cut(steps: Sequence[Step], allowed: float) -> list[int]:
    """Return the part boundaries that let the least cross between parts, with at most `allowed` bytes inside each.

    The dynamic program is exact: a result that crosses two cuts crosses every cut between them, so each part counts
    only what it makes and hands on.
    """
    least, came_from = [0.0], [0]
    for stop in range(1, len(steps) + 1):
        inside = handed_on = 0
        best, best_start = math.inf, stop - 1
        for start in range(stop - 1, -1, -1):
            step = steps[start]
            inside += step.inside_bytes
            handed_on += sum(size for size, last in step.results if last >= stop)
            alone = start == stop - 1
            if not alone and (inside > allowed or not step.repeatable or not steps[stop - 1].repeatable):
                break
            if least[start] + handed_on < best:
                best, best_start = least[start] + handed_on, start
        least.append(best)
        came_from.append(best_start)
    ends = [len(steps)]
    while ends[-1] > 0:
        ends.append(came_from[ends[-1]])
    return ends[::-1]


def _measure(steps: Sequence[Step], ends: Sequence[int], ends_the_model: bool) -> _Cutting:
    """Choose which parts to recompute, and estimate the peak that results."""
    cutting: list[Part] = []
    kept = peak = 0
    kept_before = []
    for start, stop in itertools.pairwise(ends):
        kept_before.append(kept)
        inside = sum(step.inside_bytes for step in steps[start:stop])
        handed_on = sum(size for step in steps[start:stop] for size, last in step.results if last >= stop)
        is_last = ends_the_model and stop == len(steps)
        repeatable = all(step.repeatable for step in steps[start:stop])
        again = repeatable and not is_last and inside > _MIN_GAIN * handed_on
        peak = max(peak, kept + inside)
        kept += handed_on if again else inside
        cutting.append(Part(start=start, stop=stop, again=again))
    if ends_the_model:
        cutting = _extend_last_part(steps, cutting, kept_before, peak)
    return _Cutting(parts=cutting, peak_bytes=peak)


def _extend_last_part(
    steps: Sequence[Step], cutting: list[Part], kept_before: Sequence[int], peak_bytes: int
) -> list[Part]:
    """Run more of the model's end only once. It costs no memory as long as the peak is elsewhere, and saves time."""
    for index, part in enumerate(cutting):
        if kept_before[index] + sum(step.inside_bytes for step in steps[part.start :]) <= _CLOSE * peak_bytes:
            return [*cutting[:index], Part(start=part.start, stop=len(steps), again=False)]
    return cutting
