"""Memory against batch size as a line, and what one lane's line says of another lane.

Peak memory over a step is the largest of its phases, so against the batch it is a flat stretch that turns into a
rising line. Only the rising end predicts the edge; the line through it passes below the curve beyond, so where it
crosses the budget is an upper guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from oomtune.domain import Lane

# Two points closer than this, in batch or in peak, say more about noise (up to 3 % of the peak) than about slope.
_BASELINE = 0.7
_RISE = 1.1
# Half precision has been seen to halve a model's memory, and not to do more.
_LEAST_OF_ANOTHER_PRECISION = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    fixed_bytes: float
    bytes_per_sample: float

    def edge(self, budget_bytes: float) -> float:
        """The batch size at which the line meets the budget."""
        return max(0.0, budget_bytes - self.fixed_bytes) / self.bytes_per_sample


def rising_line(peaks: Mapping[int, int]) -> Line | None:
    """The line through the largest batch and the nearest one far enough below it; None while the curve is flat."""
    if len(peaks) < 2:
        return None
    last = max(peaks)
    below = [batch for batch in peaks if batch <= last * _BASELINE and peaks[batch] * _RISE <= peaks[last]]
    if not below:
        return None
    return _through(max(below), peaks[max(below)], last, peaks[last])


def line_from_one(peaks: Mapping[int, int], borrowed: Line | None) -> Line | None:
    """The line through the largest batch known and the fixed part that another lane showed."""
    last = max(peaks, default=0)
    if peaks.get(last, 0) <= 0:
        return borrowed
    fixed = borrowed.fixed_bytes if borrowed else 0.0
    return _through(0, min(fixed, peaks[last] * 0.9), last, peaks[last])


def _through(batch: int, peak: float, larger_batch: int, larger_peak: float) -> Line:
    slope = (larger_peak - peak) / (larger_batch - batch)
    return Line(fixed_bytes=peak - slope * batch, bytes_per_sample=slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """What other lanes say of one: the line to expect, and the flattest that they leave possible."""

    expected: Line
    flattest: Line
    by_two_lengths: bool


def borrow_line(lane: Lane, lines: Mapping[Lane, Line]) -> Loan | None:
    """What the lanes run so far say of one that has not been."""
    others = {other: line for other, line in lines.items() if other != lane and other.remat == lane.remat}
    kin = {other: line for other, line in others.items() if other.precision == lane.precision}
    pool = kin or _of_one_precision(others)
    if not pool:
        return None
    nearest = sorted(pool, key=lambda other: abs(math.log(_length(other) / _length(lane))))
    low, high = _per_sample_range(_length(lane), {_length(other): pool[other] for other in nearest[:2]})
    if not kin:
        low *= _LEAST_OF_ANOTHER_PRECISION
    fixed = pool[nearest[0]].fixed_bytes
    # Half way between the extremes, by ratio: neither a straight line nor a square is assumed.
    expected = math.sqrt(low * high) if kin else high
    return Loan(
        expected=Line(fixed_bytes=fixed, bytes_per_sample=expected),
        flattest=Line(fixed_bytes=fixed, bytes_per_sample=low),
        by_two_lengths=bool(kin) and len(nearest) > 1,
    )


def _of_one_precision(lines: Mapping[Lane, Line]) -> dict[Lane, Line]:
    """The lanes of the precision that is known at the most lengths."""
    by_precision: dict[str, dict[Lane, Line]] = {}
    for lane, line in lines.items():
        by_precision.setdefault(lane.precision, {})[lane] = line
    return max(by_precision.values(), key=len, default={})


def _length(lane: Lane) -> int:
    return lane.sequence_length or 1


def _per_sample_range(length: int, known: Mapping[int, Line]) -> tuple[float, float]:
    """The least and the most that a sample of this length may take.

    Memory per sample is a constant, a part by the token and a part by pairs of tokens, none of them negative. Through
    two known lengths the extremes are the straight line and the square; from one known length, no growth and the
    square.
    """
    if len(known) == 1:
        ((other, line),) = known.items()
        ends = [line.bytes_per_sample, line.bytes_per_sample * (length / other) ** 2]
        return min(ends), max(ends)
    (near, near_line), (far, far_line) = known.items()
    ends = []
    for power in (1, 2):
        share = (length**power - near**power) / (far**power - near**power)
        ends.append(near_line.bytes_per_sample + share * (far_line.bytes_per_sample - near_line.bytes_per_sample))
    # Noise in the known lines must not predict that a sample takes nothing.
    floor = 0.5 * min(near_line.bytes_per_sample, far_line.bytes_per_sample) * min(1, length / min(known)) ** 2
    return max(floor, min(ends)), max(floor, *ends)
