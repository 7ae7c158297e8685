"""Memory against batch size as a line, and what the lines of some lanes say of another.

The peak of a step is the largest of its phases, so against the batch it is a flat stretch that turns into a rising
line. Only the rising end predicts the edge of a lane.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from oomtune.domain import Lane, is_half
from oomtune.search.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    fixed_bytes: float
    bytes_per_sample: float

    def edge(self, budget_bytes: float) -> float:
        """Return the batch size at which the line meets the budget."""
        return max(0.0, budget_bytes - self.fixed_bytes) / self.bytes_per_sample


def rising_line(peaks: Mapping[int, int]) -> Line | None:
    """Draw the line through the largest batch and the nearest one far enough below it; None while the curve is flat."""
    last = max(peaks, default=0)
    if peaks.get(last, 0) <= 0:
        return None
    far = [batch for batch in peaks if batch <= last * TUNING.baseline and peaks[batch] * TUNING.rise <= peaks[last]]
    return _through(max(far), peaks[max(far)], last, peaks[last]) if far else None


def line_from_one(peaks: Mapping[int, int], borrowed: Line | None) -> Line | None:
    """Draw the line through the largest batch that ran and the fixed part of another lane."""
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
    """What other lanes say of a lane: the line to expect, the flattest line that they leave possible, and how far off
    the expected edge may be, as a share of it."""

    expected: Line
    flattest: Line
    spread: float

    @property
    def is_vague(self) -> bool:
        """Whether to measure the lane's own curve before trusting this."""
        return self.spread > TUNING.vague


def borrow_line(lane: Lane, lines: Mapping[Lane, Line], budget_bytes: int) -> Loan | None:
    """Return what the lanes that ran say of one that did not; None when they have nothing in common with it.

    Lanes in the same precision show how memory grows with the sequence. Without two of them, the precision with the
    most lanes shows that growth, and the lane's own precision how much memory there is of it.
    """
    by_precision: dict[str, dict[int, Line]] = {}
    for other, line in _with_one_fixed_part(lines, budget_bytes).items():
        if other != lane and other.kind == lane.kind:
            by_precision.setdefault(other.precision, {})[_length(other)] = line
    kin = by_precision.pop(lane.precision, {})
    guide = max(by_precision.items(), key=lambda known: len(known[1]), default=None)
    if len(kin) > 1 or (kin and guide is None):
        return _loan(kin, _length(lane), _per_sample_range(_length(lane), kin))
    if guide is None:
        return None
    precision, known = guide
    low, high = _per_sample_range(_length(lane), known)
    if kin:
        ((length, line),) = kin.items()
        there_low, there_high = _per_sample_range(length, known)
        shape = [line.bytes_per_sample * low / there_low, line.bytes_per_sample * high / there_high]
        return _loan(kin, _length(lane), (min(shape), max(shape)))
    least, most = _beside(is_half(precision), lane.is_half)
    return _loan(known, _length(lane), (low * least, high * most))


def _beside(known_in_half: bool, asked_in_half: bool) -> tuple[float, float]:
    """Return how many times as much a sample takes in another precision, at least and at most."""
    if known_in_half == asked_in_half:
        return TUNING.alike_precision, 1 / TUNING.alike_precision
    least, most = TUNING.half_precision_least, TUNING.half_precision_most
    return (least, most) if asked_in_half else (1 / most, 1 / least)


def _with_one_fixed_part(lines: Mapping[Lane, Line], budget_bytes: int) -> dict[Lane, Line]:
    """Give all lines one fixed part and keep their edges: noise trades a line's slope against its fixed part, while
    its edge holds still."""
    edges = {lane: line.edge(budget_bytes) for lane, line in lines.items() if line.edge(budget_bytes) > 0}
    fixed = statistics.median(max(0.0, lines[lane].fixed_bytes) for lane in edges) if edges else 0.0
    return {
        lane: Line(fixed_bytes=fixed, bytes_per_sample=(budget_bytes - fixed) / edge) for lane, edge in edges.items()
    }


def _loan(known: Mapping[int, Line], length: int, per_sample: tuple[float, float]) -> Loan:
    low, high = per_sample
    fixed = known[min(known, key=lambda other: abs(math.log(other / length)))].fixed_bytes
    return Loan(
        # Half way between the extremes, by ratio: neither a straight line nor a square is assumed.
        expected=Line(fixed_bytes=fixed, bytes_per_sample=math.sqrt(low * high)),
        flattest=Line(fixed_bytes=fixed, bytes_per_sample=low),
        spread=math.log(high / low) / 2,
    )


def _length(lane: Lane) -> int:
    return lane.sequence_length or 1


def _per_sample_range(length: int, lines: Mapping[int, Line]) -> tuple[float, float]:
    """Return the least and the most that a sample of this length may take, by the two nearest lengths that ran.

    Memory per sample is a constant, a part for each token and a part for each pair of tokens, none of them negative.
    Through two lengths the extremes are the straight line and the square; from one length, no growth and the square.
    """
    known = dict(sorted(lines.items(), key=lambda item: abs(math.log(item[0] / length)))[:2])
    if length in known:
        return known[length].bytes_per_sample, known[length].bytes_per_sample
    if len(known) == 1:
        ((other, line),) = known.items()
        ends = [line.bytes_per_sample, line.bytes_per_sample * (length / other) ** 2]
        return min(ends), max(ends)
    (near, near_line), (far, far_line) = known.items()
    ends = []
    for power in (1, 2):
        share = (length**power - near**power) / (far**power - near**power)
        ends.append(near_line.bytes_per_sample + share * (far_line.bytes_per_sample - near_line.bytes_per_sample))
    # Noise in the two lines must not predict that a sample takes nothing.
    floor = 0.5 * min(near_line.bytes_per_sample, far_line.bytes_per_sample) * min(1, length / min(known)) ** 2
    return max(floor, min(ends)), max(floor, *ends)
