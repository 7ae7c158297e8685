"""The interface through which a probe reports progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oomtune.domain import Budget, Device, ProbeSpec, Trial, TrialRecord


class Observer(Protocol):
    """Receives the events of a probe as they happen."""

    def probe_started(self, spec: ProbeSpec, device: Device, budget: Budget, earlier: int) -> None: ...

    def data_read(self, samples: int, share: float) -> None: ...

    def trial_started(self, trial: Trial, number: int) -> None: ...

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None: ...

    def notice(self, text: str) -> None: ...


class SilentObserver:
    """Ignores every event."""

    def probe_started(self, spec: ProbeSpec, device: Device, budget: Budget, earlier: int) -> None: ...

    def data_read(self, samples: int, share: float) -> None: ...

    def trial_started(self, trial: Trial, number: int) -> None: ...

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None: ...

    def notice(self, text: str) -> None: ...
