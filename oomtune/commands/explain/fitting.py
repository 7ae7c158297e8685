"""Lines through a few points of a memory curve; pure.

The search's own line is for finding an edge. Here one leads to a batch that has to fit at the first try, and what is
said of the curve has to hold for all points.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from oomtune.search.line import Line

# Two points that differ by less say nothing of the slope: peaks of the same size do, by up to a tenth.
_RISE = 1.15
# Of the flat part that a curve begins with, no point is this much above the smallest.
_RISEN = 1.3


def careful_line(peaks: Mapping[int, int]) -> Line | None:
    """The steepest line through two of the points: memory a sample never rises with the batch, so where a line is
    steeper than the truth it is by noise, and predicts too little. None where the curve is flat."""
    pairs = [
        (small, large)
        for small, large in itertools.combinations(sorted(peaks), 2)
        if peaks[large] > _RISE * peaks[small]
    ]
    lines = [_through(small, peaks[small], large, peaks[large]) for small, large in pairs]
    return max(lines, key=lambda line: line.bytes_per_sample, default=None)


def fitted_line(peaks: Mapping[int, int]) -> Line | None:
    """The line nearest to all points that are above the flat part; None where there are not two of them."""
    smallest = min(peaks.values(), default=0)
    risen = [(size, peak) for size, peak in peaks.items() if peak > _RISEN * smallest]
    if len(risen) < 2:
        return careful_line(peaks)
    mean_size = sum(size for size, _ in risen) / len(risen)
    mean_peak = sum(peak for _, peak in risen) / len(risen)
    spread = sum((size - mean_size) ** 2 for size, _ in risen)
    slope = sum((size - mean_size) * (peak - mean_peak) for size, peak in risen) / spread
    return Line(fixed_bytes=mean_peak - slope * mean_size, bytes_per_sample=slope) if slope > 0 else None


def _through(size: int, peak: float, larger_size: int, larger_peak: float) -> Line:
    slope = (larger_peak - peak) / (larger_size - size)
    return Line(fixed_bytes=peak - slope * size, bytes_per_sample=slope)
