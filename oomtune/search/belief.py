"""Where the edge of a lane is thought to lie, and how sure that is.

Each measured peak says where its line meets the budget; a point near the budget says it well, one far below it badly.
Together they give a bell curve over the logarithm of the edge. Beside it stands a thin even spread over all that is
possible: when trials have cut the bell away, the spread is what is left, and its middle is a binary search.

The constants were chosen for few trials over the recorded curves in tests/benchmarks; they are not measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from oomtune.search.line import Line

# Two runs of one batch differ by about this much in their peak.
_NOISE = 0.015
# A prediction from a batch half as large is off by about this much more: allocators round, workspaces grow in steps.
_DRIFT = 0.09
# A line whose fixed part is another lane's, or nothing, is worth this much less.
_BORROWED_DRIFT = 0.2
# Only points this near to the largest are on the same stretch of the curve.
_NEAR = 0.7
# The curve has shown no slope yet, so its points say little of where it ends.
_FLAT = 1.0
# What other lanes say is never surer than this.
_HEARSAY = 0.04
# After a real out-of-memory error it is the allocator's own wall that ends the lane, and that lies less predictably.
_WALL = 0.05
# A confirm run, with its many steps, needs about this much more than the short ones that predict it.
_LONGER = 0.01
# Where a climb says the edge is, fresh processes find it about this far off.
_CLIMBED = 0.08
# How much of the belief is not in the bell.
_SPREAD = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """A belief over the edge, given that it lies from `low` up to, not including, `high`."""

    mean: float
    sigma: float
    low: float
    high: float

    def at_least(self, batch: float) -> float:
        """How likely a batch of this size fits."""
        return 1 - self._up_to(math.log(max(batch, 1e-9)))

    def quantile(self, share: float) -> float:
        """The batch size that the edge lies below with this likelihood."""
        left, right = math.log(self.low), math.log(self.high)
        for _ in range(40):
            middle = (left + right) / 2
            left, right = (middle, right) if self._up_to(middle) < share else (left, middle)
        return math.exp((left + right) / 2)

    def _up_to(self, value: float) -> float:
        left, right = math.log(self.low), math.log(self.high)
        value = min(max(value, left), right)
        whole = self._mass(left, right)
        return self._mass(left, value) / whole if whole > 0 else 1.0

    def _mass(self, left: float, right: float) -> float:
        bell = _bell((right - self.mean) / self.sigma) - _bell((left - self.mean) / self.sigma)
        width = math.log(self.high) - math.log(self.low)
        return (1 - _SPREAD) * bell + _SPREAD * (right - left) / max(width, 1e-9)


def _bell(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def believe(
    peaks: Mapping[int, int],
    line: Line,
    *,
    spread: float,
    trusted: bool,
    budget_bytes: int,
    low: float,
    high: float,
    walled: bool = False,
    climbed: bool = False,
) -> Belief:
    """What the peaks measured in a lane say of its edge; without any, what the line borrowed for it says.

    `trusted` says that the line goes through two runs in this lane; else part of it is borrowed or assumed, and
    `spread` says how far off that may be. `walled`: an out-of-memory error has bounded the lane; `climbed`: no fresh
    process has measured it yet.
    """
    room = budget_bytes - line.fixed_bytes
    weight = total = 0.0
    near = {batch: peak for batch, peak in peaks.items() if batch >= _NEAR * max(peaks) and peak > line.fixed_bytes}
    for batch, peak in near.items() if room > 0 else ():
        share = (peak - line.fixed_bytes) / room
        if batch < max(near) and batch / share < low:
            continue  # what has run since has refuted it, as on a level stretch
        sigma = math.hypot(_NOISE * budget_bytes / room, (_DRIFT if trusted else _BORROWED_DRIFT) * math.log2(share))
        if not trusted and len(peaks) > 1:
            sigma = _FLAT
        weight += sigma**-2
        total += sigma**-2 * math.log(batch / share)
    if weight == 0:
        weight = max(spread, _HEARSAY) ** -2
        total = weight * math.log(max(line.edge(budget_bytes), 0.5))
    return Belief(
        mean=total / weight - _LONGER,
        sigma=max(weight**-0.5, _WALL if walled else _NOISE / 2, _CLIMBED if climbed else 0.0),
        low=low,
        high=max(high, low * 1.0001),
    )
