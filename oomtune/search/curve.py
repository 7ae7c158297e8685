"""What the memory curve of one lane says of another lane."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from oomtune.domain import Lane, is_half
from oomtune.search.evidence import LaneView
from oomtune.search.line import Line, rising_line

# What a sample takes in another precision, at least and at most: (known in half, asked in half). Half precision has
# been seen to halve a model's memory, and to save nothing.
_BETWEEN_PRECISIONS = {
    (False, True): (0.45, 1.05),
    (True, False): (0.95, 2.2),
    (True, True): (0.85, 1.2),
    (False, False): (0.4, 2.5),
}
_SHAPE_DOUBT = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """What other lanes say of one: the line to expect, the flattest that they leave possible, and how far off the
    expected edge may be (as a share of it)."""

    expected: Line
    flattest: Line
    spread: float


def lane_lines(views: Mapping[Lane, LaneView], budget_bytes: int, resolution: float) -> dict[Lane, Line]:
    """The line of every lane that has shown one. Where the edge itself is known, the line is bent to meet it: what
    fragmentation takes from one lane it takes from the next one too."""
    lines = {}
    for lane, view in views.items():
        line = rising_line(view.peaks)
        if line is None:
            continue
        if view.low is not None and view.high is not None and view.closed(resolution):
            room = budget_bytes - line.fixed_bytes
            line = Line(fixed_bytes=line.fixed_bytes, bytes_per_sample=2 * room / (view.low + view.high))
        lines[lane] = line
    return lines


def borrow_line(lane: Lane, lines: Mapping[Lane, Line], budget_bytes: int) -> Loan | None:
    """What the lanes run so far say of one that has not been."""
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
        # The other precision shows how memory grows with the sequence, this one how much there is of it.
        ((length, line),) = kin.items()
        there_low, there_high = _per_sample_range(length, known)
        shape = [line.bytes_per_sample * low / there_low, line.bytes_per_sample * high / there_high]
        return _loan(kin, _length(lane), (min(shape) / _SHAPE_DOUBT, max(shape) * _SHAPE_DOUBT))
    least, most = _BETWEEN_PRECISIONS[is_half(precision), lane.half]
    return _loan(known, _length(lane), (low * least, high * most))


def _with_one_fixed_part(lines: Mapping[Lane, Line], budget_bytes: int) -> dict[Lane, Line]:
    """The lines with the same edges and one fixed part for all: noise moves a line's slope and fixed part against each
    other, while its edge holds still."""
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
    """The least and the most that a sample of this length may take, by the two nearest lengths known.

    Memory per sample is a constant, a part by the token and a part by pairs of tokens, none of them negative. Through
    two known lengths the extremes are the straight line and the square; from one known length, no growth and the
    square.
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
    # Noise in the known lines must not predict that a sample takes nothing.
    floor = 0.5 * min(near_line.bytes_per_sample, far_line.bytes_per_sample) * min(1, length / min(known)) ** 2
    return max(floor, min(ends)), max(floor, *ends)
