"""The interface between the search and whatever runs its trials."""

from __future__ import annotations

from typing import Protocol

from oomtune.domain import Outcome, Trial


class TimeUp(Exception):
    """Time ran out before the trial measured anything."""


class Runner(Protocol):
    """Runs trials, each in its own process. However a trial ends, the runner returns an outcome."""

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        """Run the trial and return its outcome. Raise `TimeUp` if `within_s` ran out and nothing was measured."""
        ...

    def close(self) -> None:
        """End every process that this runner started."""
        ...
