"""Memory that climbs from step to step: how fast, and what of it is explained."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import replace

from oomtune.domain import Finding
from oomtune.units import MIB, format_bytes

_EXPLAINED = 0.5
_LEAST_STEPS = 4
_SOON_STEPS = 1000
_NOISE_BYTES = 1024
_SHARE = 0.0005
_OFTEN, _LITTLE, _ONE_JUMP = 0.4, 0.25, 0.6


def leak(memory_after_step_bytes: Sequence[int], room_bytes: int) -> int:
    """Bytes by which memory climbs with each step, or 0 when it does not.

    The first half of the run settles caches and the optimizer's slots; a leak goes on climbing in the second half, if
    not at every step, and matters when it fills the room that is left, or grows by a share of what is held.
    """
    later = memory_after_step_bytes[len(memory_after_step_bytes) // 2 :]
    if len(later) < _LEAST_STEPS or not _goes_on_climbing(later):
        return 0
    slopes = [(after - before) / (j - i) for (i, before), (j, after) in itertools.combinations(enumerate(later), 2)]
    per_step = statistics.median(slopes)
    of_what_is_held = max(MIB / 64, _SHARE * later[0])
    return int(per_step) if per_step > max(_NOISE_BYTES, min(room_bytes / _SOON_STEPS, of_what_is_held)) else 0


def _goes_on_climbing(memory: Sequence[int]) -> bool:
    """Is it higher again and again, by no single jump, and hardly ever lower?"""
    growths = [after - before for before, after in itertools.pairwise(memory)]
    rises, fallen = [growth for growth in growths if growth > 0], -sum(growth for growth in growths if growth < 0)
    often = len(rises) >= _OFTEN * len(growths)
    return often and fallen <= _LITTLE * sum(rises) and max(rises) <= _ONE_JUMP * sum(rises)


def explained(findings: Sequence[Finding], leak_bytes_per_step: int) -> tuple[Finding, ...]:
    """The findings with the leak accounted for: by those that hold tensors, else by graphs, else by one of its own."""
    held = sum(finding.bytes_per_step or 0 for finding in findings)
    if held >= _EXPLAINED * leak_bytes_per_step:
        return tuple(findings)
    graphs = next((finding for finding in findings if finding.kind == "retrace"), None)
    if graphs is not None:
        said = f"{graphs.message}; memory grows by {format_bytes(leak_bytes_per_step)} a step"
        grown = replace(graphs, message=said, bytes_per_step=leak_bytes_per_step)
        return tuple(grown if finding is graphs else finding for finding in findings)
    return (
        *findings,
        Finding(
            kind="leak",
            message=f"memory grows by {format_bytes(leak_bytes_per_step)} a step, and what holds it was not found",
            hint="look for what is made anew in each step: iterators, tables, tapes that are kept",
            bytes_per_step=leak_bytes_per_step,
        ),
    )
