"""Which micro-batch to train with, so that some of them add up to the batch that was asked for."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from oomtune.search.axis import first_from
from oomtune.search.line import rising_line

# A micro-batch this much smaller than the largest is worth it if micro-batches then add up exactly.
_GIVEN_UP = 0.1
# Gradients add up in the type of the weights, which is float32 in every precision.
_BYTES_A_WEIGHT = 4


def micro_batch(
    axis: Sequence[int], effective: int, largest: int, failed: Collection[int] = (), resolution: float = 0.0
) -> int:
    """The size to train with where `largest` is the largest known to fit, to within `resolution`: one that divides
    `effective` if there is one not much smaller, or still in question above; else the smallest that takes no more of
    them, whose sum is the nearest not below `effective`."""
    wall = min((size for size in failed if size > largest), default=math.inf)
    most = int(min(largest / (1 - resolution), wall - 1))
    return next((size for size in _by_preference(axis, effective, largest, most) if size not in failed), largest)


def _by_preference(axis: Sequence[int], effective: int, largest: int, most: int) -> Iterator[int]:
    for size in range(most, math.ceil((1 - _GIVEN_UP) * largest) - 1, -1):
        if effective % size == 0 and size in axis:
            yield size
    yield first_from(axis, effective / math.ceil(effective / largest)) or largest


def may_fit_whole(effective: int, peaks: Mapping[int, int], parameters: int | None, budget_bytes: int) -> bool:
    """May the effective batch fit at once, though smaller ones do not? It needs no copy of the weights to add gradients
    up in, and they do."""
    line = rising_line({batch: peak for batch, peak in peaks.items() if batch < effective})
    if line is None or parameters is None:
        return False
    return line.fixed_bytes + line.bytes_per_sample * effective - _BYTES_A_WEIGHT * parameters <= budget_bytes
