"""The search, replayed over recorded curves: a trial costs nothing, and ends as real ones did."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from oomtune.domain import Budget, Candidate, Lane, Outcome, Purpose, SearchSpace, Trial, TrialRecord
from oomtune.trials.fake import FakeDevice
from tests.benchmarks.curves import HEADROOM, Climb, Curve, Wall
from tests.benchmarks.searching import search


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Recorded curves under one limit as the memory law of a device. Each trial draws its noise from recorded runs."""

    curves: dict[Lane, Curve]
    limit_bytes: int
    noise: random.Random

    def __call__(self, candidate: Candidate) -> int:
        curve = self.curves[candidate.lane]
        factor = self.noise.choice(curve.noise(candidate.batch_size))
        return peak_under(curve, candidate.batch_size, self.limit_bytes, factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbing:
    """Recorded curves inside a climb, whose process has run smaller sizes. One of the recorded climbs shows how much
    more or less than a fresh process it needs at each share of its limit."""

    curves: dict[Lane, Curve]
    limit_bytes: int
    noise: random.Random

    def of(self, lane: Lane) -> Callable[[Candidate], int]:
        """Return the law of one climb in a lane."""
        curve = self.curves[lane]
        nearest = min(abs(climb.limit_bytes - self.limit_bytes) for climb in curve.climbs)
        near = [climb for climb in curve.climbs if abs(climb.limit_bytes - self.limit_bytes) == nearest]
        beside = _beside_fresh(curve, self.noise.choice(near))

        def law(candidate: Candidate) -> int:
            fill = curve.typical(candidate.batch_size) / self.limit_bytes
            return int(curve.typical(candidate.batch_size) * _between(beside, fill))

        return law


def _beside_fresh(curve: Curve, climb: Climb) -> list[tuple[float, float]]:
    """Return for each size of a climb how full a fresh process was, and how many times as full the climb was."""
    typical = {size: curve.typical(size) for size in climb.peaks}
    return [(typical[size] / climb.limit_bytes, peak / typical[size]) for size, peak in climb.peaks.items()]


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    """Interpolate between the points; before the first and after the last the value stays level."""
    for (left, low), (right, high) in itertools.pairwise(points):
        if left <= at < right:
            return low + (high - low) * (at - left) / (right - left)
    return points[0][1] if at < points[0][0] else points[-1][1]


def peak_under(curve: Curve, batch: int, limit_bytes: int, noise: float) -> int:
    """Return the peak that a trial reports under a limit; more than the limit when it runs out of memory."""
    wall = min(curve.walls, key=lambda wall: abs(wall.limit_bytes - limit_bytes))
    need = curve.typical(batch) * noise
    fill = need / (wall.share * limit_bytes)
    if fill > 1:
        return limit_bytes + 1
    # Up to half of the limit the allocator lays out its regions as it would with room to spare.
    squeeze = 1 + (_reported_ratio(wall) - 1) * max(0.0, 2 * fill - 1)
    return min(int(need * squeeze), limit_bytes)


def _reported_ratio(wall: Wall) -> float:
    return wall.reported_bytes / wall.fitted_bytes


def edge_band(curve: Curve, budget: Budget) -> tuple[int, int]:
    """Return the largest batch that fits in every recorded run, and the largest that fits in the luckiest."""
    worst = best = 0
    for batch in range(1, max(curve.peaks) + 1):
        factors = curve.noise(batch)
        if worst == batch - 1 and _fits(curve, batch, budget, max(factors)):
            worst = batch
        if _fits(curve, batch, budget, min(factors)):
            best = batch
        if batch > 2 * best + 1:
            break
    return worst, best


def _fits(curve: Curve, batch: int, budget: Budget, noise: float) -> bool:
    return peak_under(curve, batch, budget.limit_bytes, noise) <= budget.budget_bytes


def budgets(curves: Sequence[Curve], count: int = 20) -> list[Budget]:
    """Return limits in even ratios that suit all of these lanes, from a few samples to nearly the largest recorded."""
    low = 1.5 * max(curve.typical(min(curve.peaks)) for curve in curves)
    high = 0.9 * min(curve.typical(max(curve.peaks)) for curve in curves)
    shares = [index / (count - 1) for index in range(count)]
    return [Budget(limit_bytes=int(low ** (1 - share) * high**share), headroom=HEADROOM) for share in shares]


def space_of(curves: Sequence[Curve], *, every_lane: bool = False) -> SearchSpace:
    """Return the space of all these lanes."""
    lengths = sorted({curve.lane.sequence_length for curve in curves if curve.lane.sequence_length is not None})
    return SearchSpace(
        batch_sizes=range(1, max(max(curve.peaks) for curve in curves) + 1),
        sequence_lengths=tuple(lengths) or None,
        precisions=tuple(dict.fromkeys(curve.lane.precision for curve in curves)),
        every_lane=every_lane,
    )


def replay(
    curves: Iterable[Curve], space: SearchSpace, budget: Budget, *, seed: int, history: Sequence[TrialRecord] = ()
) -> list[TrialRecord]:
    """Return the records of a whole search, `history` first."""
    by_lane, noise = {curve.lane: curve for curve in curves}, random.Random(seed)
    fresh = Recorded(curves=by_lane, limit_bytes=budget.limit_bytes, noise=noise)
    climbing = Climbing(curves=by_lane, limit_bytes=budget.limit_bytes, noise=noise)

    def run(trial: Trial) -> Outcome:
        # Sizes that follow a size close to them need what fresh processes need: the recordings show that.
        law = climbing.of(trial.candidate.lane) if trial.purpose is Purpose.CALIBRATE else fresh
        return FakeDevice(limit_bytes=budget.limit_bytes, headroom=budget.headroom, law=law).run(trial)

    return search(space, budget, run, history=history)
