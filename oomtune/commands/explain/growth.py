"""How memory grows with the batch and with the sequence; pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from oomtune.commands.explain.fitting import fitted_line
from oomtune.domain import Candidate, Cost, Growth, Point


def growth_of(points: tuple[Point, ...], at: Candidate, here: Cost, shorter: Mapping[int, Cost]) -> Growth:
    """The line through all points of the candidate's lane, and what the same batch takes at a shorter sequence."""
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
    # What is always there is so at every length: the rest is what the batch's tokens take.
    fixed = max(0.0, line.fixed_bytes)
    tokens = [
        (length, max(0.0, peak - fixed) / at.batch_size / length)
        for length, peak in ((at.sequence_length, here.peak_bytes), (shorter_length, cost.peak_bytes))
    ]
    per_token, per_pair = _by_token(*tokens)
    return dataclasses.replace(growth, bytes_per_token=per_token, bytes_per_pair=per_pair)


def _by_token(here: tuple[int, float], shorter: tuple[int, float]) -> tuple[float, float]:
    """Of what a token takes one part is always there, and one grows with how many others it looks at. Neither is
    negative, whatever noise says."""
    (length, token), (shorter_length, token_when_shorter) = here, shorter
    per_pair = max(0.0, (token - token_when_shorter) / (length - shorter_length))
    per_pair = min(per_pair, token / length)
    return token - per_pair * length, per_pair
