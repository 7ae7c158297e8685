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
# Without a second sequence length to compare, memory is taken to grow in proportion: true of RNNs and CNNs, and
# between the two terms of attention.
_DEFAULT_EXPONENT = 1.0


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
    if not peaks:
        return borrowed
    last = max(peaks)
    fixed = borrowed.fixed_bytes if borrowed else 0.0
    return _through(0, min(fixed, peaks[last] * 0.9), last, peaks[last])


def _through(batch: int, peak: float, larger_batch: int, larger_peak: float) -> Line:
    slope = (larger_peak - peak) / (larger_batch - batch)
    return Line(fixed_bytes=peak - slope * batch, bytes_per_sample=slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """A line borrowed from other lanes, and the factor by which the edge it gives may be too small."""

    line: Line
    doubt: float


def borrow_line(lane: Lane, lines: Mapping[Lane, Line]) -> Loan | None:
    """What the lanes run so far say of one that has not been."""
    others = {other: line for other, line in lines.items() if other != lane and other.remat == lane.remat}
    kin = {other: line for other, line in others.items() if other.precision == lane.precision}
    pool = kin or others
    if not pool:
        return None
    if lane.sequence_length is None:
        return Loan(line=next(iter(pool.values())), doubt=3.0)
    by_length = sorted(
        ((other.sequence_length or 1, line) for other, line in pool.items()),
        key=lambda item: abs(math.log(item[0] / (lane.sequence_length or 1))),
    )
    length, line = by_length[0]
    exponent = _exponent(by_length) or _exponent_elsewhere(others) or _DEFAULT_EXPONENT
    scale = (lane.sequence_length / length) ** exponent
    # Between two lengths of its own precision a lane is well known; otherwise the line is a guess.
    known = bool(kin) and (_exponent(by_length) or _exponent_elsewhere(others)) is not None
    return Loan(
        line=Line(fixed_bytes=line.fixed_bytes, bytes_per_sample=line.bytes_per_sample * scale),
        doubt=1.1 if known else 3.0,
    )


def _exponent(by_length: list[tuple[int, Line]]) -> float | None:
    """How memory per sample grows with the sequence, from the two lines nearest in length."""
    if len(by_length) < 2 or by_length[0][0] == by_length[1][0]:
        return None
    (near, near_line), (far, far_line) = by_length[:2]
    growth = math.log(far_line.bytes_per_sample / near_line.bytes_per_sample) / math.log(far / near)
    return min(2.0, max(0.0, growth))


def _exponent_elsewhere(lines: Mapping[Lane, Line]) -> float | None:
    """The same from any other precision whose lanes of two lengths have run."""
    for precision in dict.fromkeys(lane.precision for lane in lines):
        by_length = [(lane.sequence_length or 1, line) for lane, line in lines.items() if lane.precision == precision]
        exponent = _exponent(sorted(by_length, key=lambda item: item[0]))
        if exponent is not None:
            return exponent
    return None
