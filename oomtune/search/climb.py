"""Run several batch sizes in one process: which size comes next, and when enough sizes have run.

A size costs only its steps here; a trial of its own would build and trace the model again. A climb therefore goes all
the way: out of the flat part of the curve, along the rising line to near the budget, then just over it. Where it ends
is a strong hint and no proof, because a process that has run smaller sizes may need more memory than a fresh one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from oomtune.domain import Point
from oomtune.search.tuning import TUNING

RunSize = Callable[[int], Point | None]
"""Runs one size. Returns None to stop there: the size did not fit, or there is no time for it."""


def climb(sizes: Sequence[int], run: RunSize, *, budget_bytes: int, every: bool = False) -> tuple[Point, ...]:
    """Climb through `sizes` and return the points of those that fitted. `every` leaves out no size below the budget."""
    return _run_while(lambda points: next_size(sizes, points, budget_bytes, every=every), run)


def go_further(
    sizes: Sequence[int], start: Point, run: RunSize, *, budget_bytes: int, from_afar: bool = False
) -> tuple[Point, ...]:
    """Run sizes larger than `start`, which has just fitted, and return the points of those that fit too."""
    return _run_while(
        lambda points: next_further(sizes, [start, *points], budget_bytes, from_afar=from_afar),
        run,
    )


def _run_while(choose: Callable[[Sequence[Point]], int | None], run: RunSize) -> tuple[Point, ...]:
    points: list[Point] = []
    while (size := choose(points)) is not None and (point := run(size)) is not None:
        points.append(point)
    return tuple(points)


def next_size(sizes: Sequence[int], points: Sequence[Point], budget_bytes: int, *, every: bool = False) -> int | None:
    """Return the next size of a climb after those measured in `points`; None when they are enough."""
    if not points:
        return sizes[0]
    last = points[-1]
    larger = [size for size in sizes if size > last.batch_size]
    if not larger or last.peak_bytes > budget_bytes:
        return None
    if every:
        return larger[0]
    if last.step_ms > TUNING.slow_step_ms or len(points) >= TUNING.most_sizes:
        return None
    return _towards_edge(points, larger, budget_bytes)


def _towards_edge(points: Sequence[Point], larger: Sequence[int], budget_bytes: int) -> int | None:
    last = points[-1]
    share = max(1, last.peak_bytes) / budget_bytes
    below = next((point for point in reversed(points) if point.peak_bytes * TUNING.rise < last.peak_bytes), None)
    bound = last.batch_size * TUNING.leap
    if below is None:
        # Memory per sample never rises with the batch: up to the inverse of its share, a size stays in the budget.
        return _largest_up_to(min(bound, last.batch_size * max(2, 1 / share)), larger)
    slope = (last.peak_bytes - below.peak_bytes) / (last.batch_size - below.batch_size)
    edge = last.batch_size + (budget_bytes - last.peak_bytes) / slope
    if share < TUNING.near_budget:
        # Each size halves the way to the edge: from far away the line may still hold some of the flat part.
        return _largest_up_to(min(bound, (last.batch_size + edge) / 2), larger) or larger[0]
    return next((size for size in larger if size >= min(bound, edge)), larger[-1])


def next_further(
    sizes: Sequence[int], points: Sequence[Point], budget_bytes: int, *, from_afar: bool = False
) -> int | None:
    """Return the next of `sizes` after those in `points`, the last of which fitted; None when they are enough."""
    last = points[-1]
    larger = [size for size in sizes if size > last.batch_size]
    if not larger or last.peak_bytes > budget_bytes or len(points) > TUNING.most_sizes:
        return None
    # Memory per sample never rises with the batch, so this many times the size fits too.
    room = budget_bytes / max(1, last.peak_bytes)
    # From afar that is not to be trusted, because the allocator reuses its chunks in other ways, and the first size
    # that fails ends its process. Half of the way at a time, each size near the edge also follows one close to it.
    return _largest_up_to(last.batch_size * (math.sqrt(room) if from_afar else room), larger) or larger[0]


def _largest_up_to(bound: float, sizes: Sequence[int]) -> int | None:
    return max((size for size in sizes if size <= bound), default=None)
