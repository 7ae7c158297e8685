"""Where to cut a chain of steps so that computing its parts again saves most. No TensorFlow here.

While the backward pass is in one part, memory holds what crosses the cuts up to there and all that is inside the part.
Many cuts make the parts small, few cuts keep less between them; the best lies in between and depends on the sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

# A part that keeps nearly as much at its end as inside is not worth computing twice.
_LEAST_GAIN = 1.25
# What is estimated to save less than this share is left alone: in a whole model, and in a part of one, which could
# also be computed again as a whole.
_LEAST_SAVED, _LEAST_SAVED_INSIDE = 0.1, 0.5
_FINENESS = 1.25
# Sizes are estimates: of cuttings that are about as good, the one with the fewest parts is the best.
_NEARLY = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One layer or operation, in the order in which they run."""

    inside_bytes: int
    """What it keeps for the backward pass, its results included."""
    results: tuple[tuple[int, int], ...]
    """Bytes of each of its results, and the place of the last step that uses it."""
    repeatable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    start: int
    stop: int
    again: bool
    """Is it computed again in the backward pass?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cutting:
    parts: list[Part]
    peak_bytes: int


def parts(steps: Sequence[Step], *, ends_the_model: bool) -> list[Part]:
    """The steps in parts; none of them is computed again where that would save nothing worth having.

    The last part of a model is never computed again: its backward pass begins where its forward pass ends.
    """
    whole = sum(step.inside_bytes for step in steps)
    least_saved = _LEAST_SAVED if ends_the_model else _LEAST_SAVED_INSIDE
    tried = [_measured(steps, _cut(steps, allowed), ends_the_model) for allowed in _allowances(steps, whole)]
    least = min((cutting.peak_bytes for cutting in tried), default=0)
    if least >= (1 - least_saved) * whole:
        return [Part(start=0, stop=len(steps), again=False)]
    good = [cutting for cutting in tried if cutting.peak_bytes <= _NEARLY * least]
    return min(good, key=lambda cutting: len(cutting.parts)).parts


def _allowances(steps: Sequence[Step], whole: int) -> list[float]:
    """How much one part may hold: from the largest step, which can't be cut, to half of all."""
    most = max((step.inside_bytes for step in steps), default=0)
    powers = math.log(whole / 2 / most, _FINENESS) if most and whole > 2 * most else 0
    return [most * _FINENESS**power for power in range(math.ceil(powers) + 1)]


def _cut(steps: Sequence[Step], allowed: float) -> list[int]:
    """Where parts end when none holds more than is allowed inside and as little as possible crosses from one to the
    next. Exact: what crosses two cuts crosses those between, so each part counts what it makes and hands on."""
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


def _measured(steps: Sequence[Step], ends: Sequence[int], ends_the_model: bool) -> _Cutting:
    found: list[Part] = []
    kept = peak = 0
    kept_before = []
    for start, stop in itertools.pairwise(ends):
        kept_before.append(kept)
        inside = sum(step.inside_bytes for step in steps[start:stop])
        handed_on = sum(size for step in steps[start:stop] for size, last in step.results if last >= stop)
        last_of_all = ends_the_model and stop == len(steps)
        repeatable = all(step.repeatable for step in steps[start:stop])
        again = repeatable and not last_of_all and inside > _LEAST_GAIN * handed_on
        peak = max(peak, kept + inside)
        kept += handed_on if again else inside
        found.append(Part(start=start, stop=stop, again=again))
    if ends_the_model:
        found = _with_a_long_end(steps, found, kept_before, peak)
    return _Cutting(parts=found, peak_bytes=peak)


def _with_a_long_end(
    steps: Sequence[Step], found: list[Part], kept_before: Sequence[int], peak_bytes: int
) -> list[Part]:
    """What is computed once at the end costs no memory as long as the peak is elsewhere, and saves time."""
    for place, part in enumerate(found):
        if kept_before[place] + sum(step.inside_bytes for step in steps[part.start :]) <= _NEARLY * peak_bytes:
            return [*found[:place], Part(start=part.start, stop=len(steps), again=False)]
    return found
