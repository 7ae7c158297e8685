"""The one boundary behind which trials run."""

from __future__ import annotations

from typing import Protocol

from oomtune.domain import Outcome, Trial


class Runner(Protocol):
    """Runs a trial in a process of its own and says how it ended. Never raises for how a trial ends."""

    def run(self, trial: Trial) -> Outcome: ...

    def close(self) -> None:
        """End every process this runner started."""
        ...
