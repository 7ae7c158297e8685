"""Memory that climbs from step to step: who holds what is new, and the line that makes it so.

Three looks, each only when the one before gave reason for it: is memory higher after each of the last steps; what has
grown by tensors since; and, with tracing on for one step, at which line does it grow.
"""

from __future__ import annotations

import itertools

from oomtune.domain import Finding
from oomtune.units import format_bytes
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch import holders
from oomtune.worker.watch import user_frames as users
from oomtune.worker.watch.catching import Catching
from oomtune.worker.watch.holders import Growth, Snapshot

_CLIMBING_STEPS = 3
_SELDOM = 2  # what grows in some steps only is looked at over so many times as many
_STEPS_BETWEEN = 2
_LITTLE = 0.25  # of what memory rose by: it may fall a little between, and climb all the same
_MOST_LOOKS = 3
_MOST_SUSPECTS = 6


class GrowthWatch:
    """Told when a step begins and ends; what it finds goes into `progress`."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.looks_left = _MOST_LOOKS
        self.before: Snapshot | None = None
        self.looked_at = 0
        self.period = 1
        self.suspects: list[Growth] = []
        self.catching: Catching | None = None
        self.caught_in = 0

    def step_begins(self) -> None:
        if self.suspects and self.catching is None:
            self.catching = Catching(self.suspects)
            self.caught_in = 0
        if self.catching is not None:
            self.catching.start()

    def step_ended(self) -> None:
        memory = self.progress.memory_after_step_bytes
        if self.catching is not None:
            self.catching.stop()
            self.caught_in += 1
            if self.caught_in == self.period:
                self._tell(self.catching)
                self.suspects, self.catching, self.looks_left = [], None, 0
        elif self.before is not None:
            between = _STEPS_BETWEEN * self.period
            if len(memory) - self.looked_at >= between:
                self.suspects = holders.grown(self.before, between, least=_STEPS_BETWEEN)[:_MOST_SUSPECTS]
                self.before = None
        elif self.looks_left and (period := _climbs(memory)):
            looked_before = self.looks_left < _MOST_LOOKS
            self.period = _SELDOM if looked_before else period  # little things may grow at each step, what matters not
            self.looks_left -= 1
            self.looked_at = len(memory)
            self.before = holders.snapshot()

    def _tell(self, caught: Catching) -> None:
        """Each line once: what Keras keeps of the same tensors, under a name of its own, comes after the user's."""
        grew = [
            (-growth.bytes_per_step, "._" in (name := growth.named()), name, index)
            for index, growth in enumerate(caught.things)
            if _goes_on(growth, caught.growth(index), self.period)
        ]
        for _, _, name, index in sorted(grew):
            finding = _finding(caught.things[index], name, users.as_written(caught.lines.get(index, "")))
            if not any(_is_same(finding, told) for told in self.progress.findings.values()):
                self.progress.found(finding)


def _is_same(one: Finding, other: Finding) -> bool:
    """Of what no line is known, the size tells."""
    same_size = one.bytes_per_step == other.bytes_per_step
    return (one.kind, one.where) == (other.kind, other.where) and (bool(one.where) or same_size)


def _climbs(memory: list[int]) -> int:
    """Every how many steps memory is higher: in each, in some of the last, or (0) in too few of them."""
    growths = [after - before for before, after in itertools.pairwise(memory[-_SELDOM * _CLIMBING_STEPS - 1 :])]
    last = growths[-_CLIMBING_STEPS:]
    if len(last) == _CLIMBING_STEPS and min(last) > 0:
        return 1
    rises, fallen = [growth for growth in growths if growth > 0], -sum(growth for growth in growths if growth < 0)
    seldom = len(growths) == _SELDOM * _CLIMBING_STEPS and fallen <= _LITTLE * sum(rises)
    return _SELDOM if seldom and len(rises) >= _CLIMBING_STEPS else 0


def _goes_on(growth: Growth, more: int, steps: int) -> bool:
    """Did it grow in these steps as it had before? A tensor may also be larger because a batch was longer."""
    if growth.holds == "one tensor":
        return growth.bytes_per_step / 2 <= more / steps <= growth.bytes_per_step * 2
    return more > 0


def _finding(growth: Growth, name: str, line: str) -> Finding:
    rate = f"{format_bytes(growth.bytes_per_step)} a step"
    if growth.holds == "one tensor":
        return Finding(
            kind="leak",
            message=f"the tensor {name} is {rate} larger after each step",
            where=line,
            hint="keep a fixed number of its rows, or write them into a tf.Variable of a fixed size",
            bytes_per_step=growth.bytes_per_step,
        )
    what = growth.holds.removesuffix("s") if growth.count == 1 else growth.holds
    message = f"{name} holds {growth.count:g} more {what} after each step, {rate}"
    if growth.holds == "variables":
        return Finding(
            kind="leak",
            message=message,
            where=line,
            hint="make variables once, in __init__ or build(), and assign() to them in a step",
            bytes_per_step=growth.bytes_per_step,
        )
    return Finding(
        kind="kept_tensors",
        message=message,
        where=line,
        hint="keep numbers instead, such as float(loss) or tensor.numpy(), or clear it at an epoch's end",
        bytes_per_step=growth.bytes_per_step,
    )
