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
from oomtune.search import best_fit, buckets_found, frontier, next_larger, next_trial_of_all
from oomtune.trials.runner import Runner, TimeUp


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
        while (trial := next_trial_of_all(spec.space, budget, history)) is not None:
            if limits.max_trials is not None and len(history) - len(earlier) >= limits.max_trials:
                verdict, problem = Verdict.STOPPED, _stopped("max_trials", len(history) - len(earlier))
                break
            observer.trial_started(trial, len(history) + 1)
            outcome = runner.run(trial, within_s=None if limits.deadline is None else limits.deadline - clock())
            history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome))
            ledger.append(history[-1])
            observer.trial_ended(history[-1], history)
            if outcome.kind is Kind.CRASH and trial.for_buckets:
                # There is an answer already; this model can't train on other lengths.
                observer.notice(f"no buckets: {outcome.error.message if outcome.error else 'they can not take turns'}")
            elif outcome.kind is Kind.CRASH:
                verdict, problem = Verdict.FAILED, outcome.error
                break
    except TimeUp:
        verdict, problem = Verdict.STOPPED, _stopped("time_limit", len(history) - len(earlier))
    except KeyboardInterrupt:
        verdict, problem = Verdict.INTERRUPTED, _interrupted(len(history))
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
        buckets=buckets_found(spec.space, budget, history),
        frontier=frontier(spec.space, history, budget),
        next_larger=None if best is None else next_larger(spec.space, history, best.candidate, budget),
        problem=problem,
        new_trials=len(history) - len(earlier),
    )


def _stopped(code: str, trials: int) -> TrialError:
    return TrialError(code=code, message=f"stopped by --{code.replace('_', '-')} after {trials} more trials")


def _interrupted(trials: int) -> TrialError:
    return TrialError(
        code="interrupted",
        message=f"interrupted; {trials} trials are kept",
        hint="the same command goes on from there",
    )
