"""The one boundary behind which trials run."""

from __future__ import annotations

from typing import Protocol

from oomtune.domain import Outcome, Trial


class TimeUp(Exception):
    """The trial had not ended within the time it was given."""


class Runner(Protocol):
    """Runs a trial in a process of its own and says how it ended. Never raises for how a trial ends."""

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        """How the trial ended. Raises TimeUp when it was stopped after `within_s` and had shown nothing."""
        ...

    def close(self) -> None:
        """End every process this runner started."""
        ...
