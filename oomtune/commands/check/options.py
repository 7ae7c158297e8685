"""What may be said beside the file that is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oomtune.commands.prepare import device_flags
from oomtune.errors import UsageProblem
from oomtune.units import parse_share


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """`against` is a card whose budget the CPU gets. What makes no sense together is refused here."""

    device: str | None = None
    memory_limit: str | int | None = None
    like: str | None = None
    against: str | None = None
    settings: Sequence[str] = ()
    tolerance: float | str = 0.05
    """A share, `0.05` or `5%`."""
    allow_device_change: bool = False
    update: bool = False

    def __post_init__(self) -> None:
        _ = self.growth_allowed
        if self.against is not None and (self.device or self.memory_limit or self.like):
            raise UsageProblem("--against sets the device and its limit", hint="leave the other device options out")
        if self.against is not None and self.update:
            raise UsageProblem(
                f"--update writes what was found here, and --against {self.against} only plays at being there",
                hint=f"leave one of them out; to tune for that card without it: oomtune probe --like {self.against!r}",
            )

    @property
    def growth_allowed(self) -> float:
        try:
            return parse_share(str(self.tolerance))
        except ValueError as error:
            raise UsageProblem(f"--tolerance {self.tolerance}: {error}") from None

    @property
    def elsewhere_is_well(self) -> bool:
        """May it be checked on another device than the one that it was tuned on?"""
        return self.allow_device_change or self.against is not None

    def flags(self) -> dict[str, tuple[str, Any]]:
        """The spec's entries that these set, each with the flag that did."""
        if self.against is None:
            return device_flags(self.device, self.memory_limit, self.like)
        return {"device.kind": ("--against", "cpu"), "device.like": ("--against", self.against)}
