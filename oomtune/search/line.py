"""Memory against batch size as a line.

Peak memory over a step is the largest of its phases, so against the batch it is a flat stretch that turns into a
rising line. Only the rising end predicts the edge; the line through it passes below the curve beyond, so where it
crosses the budget is an upper guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Two points closer than this, in batch or in peak, say more about noise (up to 3 % of the peak) than about slope.
_BASELINE = 0.7
_RISE = 1.1


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
