"""Where the edge of a lane is thought to lie, and how sure that is.

Each measured peak says where its line meets the budget: a peak near the budget says it well, one far below it badly.
Together they give a bell curve over the logarithm of the edge. Beside it stands a thin even spread over all that is
possible: when trials have cut the bell away, the spread is what is left, and its middle is a binary search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oomtune.search.curves import Line
from oomtune.search.lanes import LaneView
from oomtune.search.tuning import TUNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """A belief over the edge, given that it lies from `low` up to, not including, `high`."""

    mean: float
    sigma: float
    low: float
    high: float

    def at_least(self, batch: float) -> float:
        """Return how likely a batch of this size fits."""
        return 1 - self._up_to(math.log(max(batch, 1e-9)))

    def quantile(self, share: float) -> float:
        """Return the batch size that the edge lies below with this likelihood."""
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
        return (1 - TUNING.even_share) * bell + TUNING.even_share * (right - left) / max(width, 1e-9)


def _bell(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def believe(view: LaneView, line: Line, *, spread: float, budget_bytes: int) -> Belief:
    """Return what history says of a lane's edge: by its own peaks, or without any by the `line` borrowed for it,
    whose edge may be off by the share `spread`."""
    low = float(view.low or view.axis[0] * 0.5)
    high = float(view.high or view.axis[-1] * 1.5)
    room = budget_bytes - line.fixed_bytes
    weight = total = 0.0
    for batch, peak in view.peaks.items():
        share = (peak - line.fixed_bytes) / room if room > 0 else 0.0
        # A larger batch may have refuted what a smaller one says, as on a level stretch of the curve.
        if share > 0 and (batch / share >= low or batch == max(view.peaks)):
            sigma = math.hypot(TUNING.noise * budget_bytes / room, TUNING.drift * math.log2(share))
            weight += sigma**-2
            total += sigma**-2 * math.log(batch / share)
    if weight == 0:
        weight = max(spread, TUNING.noise) ** -2
        total = weight * math.log(max(line.edge(budget_bytes), 0.5))
    return Belief(
        mean=total / weight,
        sigma=max(weight**-0.5, TUNING.edge_doubt),
        low=low,
        high=max(high, low * 1.0001),
    )
