"""Where variations of a spec are run, one trial after the other."""

from __future__ import annotations

from typing import Protocol

from oomtune.domain import Budget, Device, Outcome, ProbeSpec, Trial
from oomtune.domain.observer import Observer, SilentObserver
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost


class ExplainObserver(Observer, Protocol):
    """Is also told what each trial is for."""

    def measuring(self, what: str, trial: Trial, number: int) -> None: ...

    def measured(self, what: str, outcome: Outcome, number: int) -> None: ...


class SilentExplainObserver(SilentObserver):
    """Tells nobody."""

    def measuring(self, what: str, trial: Trial, number: int) -> None: ...

    def measured(self, what: str, outcome: Outcome, number: int) -> None: ...


class Bench(Protocol):
    """Runs a trial of a spec, which may be another one each time."""

    @property
    def trials(self) -> int: ...

    def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome: ...


class ForkBench:
    """Runs them in processes forked from one worker."""

    def __init__(self, device: Device, host: WorkerHost, observer: ExplainObserver) -> None:
        self.device = device
        self.host = host
        self.observer = observer
        self.environment: dict[str, str] = {}
        """What has to be set for trials to run here."""
        self.trials = 0

    def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
        self.trials += 1
        self.observer.measuring(what, trial, self.trials)
        runner = ForkRunner(
            spec=spec,
            device=self.device,
            budget=budget,
            notice=self.observer.notice,
            host=self.host,
            environment=self.environment,
        )
        try:
            outcome = runner.run(trial)
        finally:
            # It may have had to go on with another worker; what that needs, the next trial needs too.
            self.host, self.environment = runner.host, runner.environment
        self.observer.measured(what, outcome, self.trials)
        return outcome

    def close(self) -> None:
        self.host.close()
