"""The only loop: ask the search, run the trial, record it, tell the observer; until the answer is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from oomtune.domain import (
    Budget,
    Device,
    Kind,
    ProbeResult,
    ProbeSpec,
    TrialError,
    TrialRecord,
    Verdict,
)
from oomtune.observer import Observer
from oomtune.search import best_fit, frontier, next_larger, next_trial
from oomtune.trials.runner import Runner


class RecordKeeper(Protocol):
    """Keeps records; the ledger, or a list in tests."""

    def append(self, record: TrialRecord) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop early. `deadline` is on the session's clock, set when the command began."""

    max_trials: int | None = None
    deadline: float | None = None


def run_session(
    spec: ProbeSpec,
    device: Device,
    budget: Budget,
    *,
    runner: Runner,
    ledger: RecordKeeper,
    earlier: Sequence[TrialRecord],
    observer: Observer,
    limits: Limits,
    clock: Callable[[], float] = time.monotonic,
) -> ProbeResult:
    """Search from what `earlier` runs showed to a confirmed answer, or to the reason why there is none."""
    history = list(earlier)
    verdict, problem = Verdict.TUNED, None
    try:
        while (trial := next_trial(spec.space, budget, history)) is not None:
            stop = _limit_reached(limits, len(history) - len(earlier), clock())
            if stop is not None:
                verdict, problem = Verdict.STOPPED, stop
                break
            number = len(history) + 1
            observer.trial_started(trial, number)
            record = TrialRecord(number=number, trial=trial, outcome=runner.run(trial))
            ledger.append(record)
            history.append(record)
            observer.trial_ended(record, history)
            if record.outcome.kind is Kind.CRASH:
                verdict, problem = Verdict.FAILED, record.outcome.error
                break
    except KeyboardInterrupt:
        verdict = Verdict.INTERRUPTED
        problem = TrialError(
            code="interrupted",
            message=f"interrupted; {len(history)} trials are kept",
            hint="the same command goes on from there",
        )
    best = best_fit(spec.space, history)
    if verdict is Verdict.TUNED and best is None:
        verdict = Verdict.NOTHING_FITS
    return ProbeResult(
        verdict=verdict,
        spec=spec,
        device=device,
        budget=budget,
        records=tuple(history),
        best=best,
        frontier=frontier(spec.space, history),
        next_larger=None if best is None else next_larger(spec.space, history, best.candidate),
        problem=problem,
        new_trials=len(history) - len(earlier),
    )


def _limit_reached(limits: Limits, trials: int, now: float) -> TrialError | None:
    if limits.max_trials is not None and trials >= limits.max_trials:
        return TrialError(code="max_trials", message=f"stopped by --max-trials after {trials} more trials")
    if limits.deadline is not None and now >= limits.deadline:
        return TrialError(code="time_limit", message=f"stopped by --time-limit after {trials} more trials")
    return None
