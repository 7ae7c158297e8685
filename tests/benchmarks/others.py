"""How other tools search for the largest batch, each in a few lines.

Each search takes a function that runs one batch size, the largest size to try and the budget, and returns its answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from oomtune.domain import Kind, Outcome

Ask = Callable[[int], Outcome]
Search = Callable[[Ask, int, int], int]


def doubling_then_bisection(ask: Ask, top: int, _budget_bytes: int) -> int:
    """Lightning's `binsearch`."""
    low, high = 0, 2
    while high <= top and _fits(ask, high):
        low, high = high, high * 2
    high = min(high, top + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(ask, middle) else (low, middle)
    return low


def shrinking_by_a_tenth(ask: Ask, top: int, _budget_bytes: int) -> int:
    """Accelerate's `find_executable_batch_size`."""
    batch = top
    while batch > 0 and not _fits(ask, batch):
        batch = int(batch * 0.9)
    return batch


def halving(ask: Ask, top: int, _budget_bytes: int) -> int:
    """The search of toma and Composer."""
    batch = top
    while batch > 0 and not _fits(ask, batch):
        batch //= 2
    return batch


def bisection_to_sixteen(ask: Ask, _top: int, _budget_bytes: int) -> int:
    """The search of OpenNMT-tf: bisect [1, 512] to within 16, then take 70 %."""
    low, high = 1, 512
    while high - low > 16:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(ask, middle) else (low, middle)
    return int(0.7 * low)


def line_through_five(ask: Ask, _top: int, budget_bytes: int) -> int:
    """Ultralytics' `autobatch`, which never runs its answer."""
    batches = [1, 2, 4, 8, 16]
    peaks = [ask(batch).peak_bytes or 0 for batch in batches]
    slope, fixed = statistics.linear_regression(batches, peaks)
    return int((budget_bytes - fixed) / slope)


OTHERS: dict[str, Search] = {
    "doubling, then bisection (Lightning)": doubling_then_bisection,
    "shrinking by 0.9 (Accelerate)": shrinking_by_a_tenth,
    "halving (toma, Composer)": halving,
    "bisection of [1, 512] (OpenNMT-tf)": bisection_to_sixteen,
    "a line through five (Ultralytics)": line_through_five,
}


def _fits(ask: Ask, batch: int) -> bool:
    return ask(batch).kind is Kind.FITS
