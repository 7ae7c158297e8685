"""How memory grows with the batch and the sequence: lines through a few measured points. Pure.

The search fits its own line to find an edge. Here, a line leads to a batch that has to fit at the first attempt, and
what it says about the curve has to hold for all points.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from oomtune.domain import Candidate, Cost, Growth, Point
from oomtune.search.curves import Line

# Two points that differ by less say nothing about the slope: peaks of one size vary by up to a tenth.
_RISE = 1.15
# Curves begin flat; no point of the flat part is this much above the smallest.
_FLAT = 1.3


def measure_growth(points: tuple[Point, ...], at: Candidate, here: Cost, shorter: Mapping[int, Cost]) -> Growth:
    """Fit a line to all points of the candidate's lane, and compare the same batch at a shorter sequence."""
    line = fitted_line({point.batch_size: point.peak_bytes for point in points})
    shorter_length, cost = next(iter(shorter.items()), (None, None))
    growth = Growth(
        points=points,
        fixed_bytes=None if line is None else line.fixed_bytes,
        bytes_per_sample=None if line is None else line.bytes_per_sample,
        sequence_length=at.sequence_length,
        shorter_length=shorter_length,
    )
    if line is None or cost is None or shorter_length is None or at.sequence_length is None:
        return growth
    # The fixed part is the same at every length; the rest belongs to the tokens of the batch.
    fixed = max(0.0, line.fixed_bytes)
    bytes_per_token = [
        (length, max(0.0, peak - fixed) / at.batch_size / length)
        for length, peak in ((at.sequence_length, here.peak_bytes), (shorter_length, cost.peak_bytes))
    ]
    per_token, per_pair = _split_by_token(*bytes_per_token)
    return dataclasses.replace(growth, bytes_per_token=per_token, bytes_per_pair=per_pair)


def _split_by_token(here: tuple[int, float], shorter: tuple[int, float]) -> tuple[float, float]:
    """Split the bytes per token into a constant part and a part for each other token that it attends to.

    Neither is negative, whatever the noise."""
    (length, token), (shorter_length, shorter_token) = here, shorter
    per_pair = max(0.0, (token - shorter_token) / (length - shorter_length))
    per_pair = min(per_pair, token / length)
    return token - per_pair * length, per_pair


def careful_line(peaks: Mapping[int, int]) -> Line | None:
    """Return the steepest line through two of the points, or None if the curve is flat.

    Memory per sample never rises with the batch, so a line steeper than the truth comes from noise and predicts too
    small a batch, never too large a one."""
    pairs = [
        (small, large)
        for small, large in itertools.combinations(sorted(peaks), 2)
        if peaks[large] > _RISE * peaks[small]
    ]
    lines = [_line_through(small, peaks[small], large, peaks[large]) for small, large in pairs]
    return max(lines, key=lambda line: line.bytes_per_sample, default=None)


def fitted_line(peaks: Mapping[int, int]) -> Line | None:
    """Return the least-squares line through the points above the flat part, or None if there is no slope."""
    smallest = min(peaks.values(), default=0)
    risen = [(size, peak) for size, peak in peaks.items() if peak > _FLAT * smallest]
    if len(risen) < 2:
        return careful_line(peaks)
    mean_size = sum(size for size, _ in risen) / len(risen)
    mean_peak = sum(peak for _, peak in risen) / len(risen)
    spread = sum((size - mean_size) ** 2 for size, _ in risen)
    slope = sum((size - mean_size) * (peak - mean_peak) for size, peak in risen) / spread
    return Line(fixed_bytes=mean_peak - slope * mean_size, bytes_per_sample=slope) if slope > 0 else None


def _line_through(size: int, peak: float, larger_size: int, larger_peak: float) -> Line:
    slope = (larger_peak - peak) / (larger_size - size)
    return Line(fixed_bytes=peak - slope * size, bytes_per_sample=slope)
