"""The search loop: choose the next trial, run it, record it, notify the observer, until the search is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from oomtune.domain import (
    Aim,
    Budget,
    Device,
    Failed,
    Kind,
    Outcome,
    ProbeResult,
    ProbeSpec,
    Purpose,
    Stage,
    Trial,
    TrialError,
    TrialRecord,
    Verdict,
)
from oomtune.domain.observer import Observer
from oomtune.search import best_fit, buckets_found, frontier, next_larger, next_trial_of_all, refused_precisions
from oomtune.trials.runner import Runner, TimeUp
from oomtune.units import format_count

_Stop = tuple[Verdict, TrialError | None]


class RecordKeeper(Protocol):
    """Stores records: the ledger, or a list in tests."""

    def append(self, record: TrialRecord) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop early. `deadline` is a time of the session's clock."""

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
    """Continue the search after the `earlier` trials. Return the confirmed answer, or the reason why there is none."""
    history = list(earlier)
    trial: Trial | None = None
    stop: _Stop | None = None
    try:
        while stop is None and (trial := next_trial_of_all(spec.space, budget, history)) is not None:
            new_trials = len(history) - len(earlier)
            if limits.max_trials is not None and new_trials >= limits.max_trials:
                stop = _stop_before(trial, "max_trials", new_trials)
                break
            observer.trial_started(trial, len(history) + 1)
            outcome = runner.run(trial, within_s=None if limits.deadline is None else limits.deadline - clock())
            if new_trials == 0 and _data_does_not_match(outcome):
                # No step ran, and none will with this data. Like a check before the search, this counts as no trial.
                stop = Verdict.FAILED, outcome.error
                break
            record = TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome)
            history.append(record)
            ledger.append(record)
            observer.trial_ended(record, history)
            if outcome.kind is Kind.CRASH:
                stop = _after_crash(spec, history, outcome, observer)
    except TimeUp:
        stop = _stop_before(trial, "time_limit", len(history) - len(earlier))
    except KeyboardInterrupt:
        stop = Verdict.INTERRUPTED, _interrupted(len(history))
    verdict, problem = stop or _conclude(spec, history)
    result = result_of(spec, device, budget, history, verdict, problem)
    if verdict is Verdict.TUNED and result.buckets is None and (notice := _why_no_buckets(history)):
        observer.notice(notice)
    return replace(result, new_trials=len(history) - len(earlier))


def result_of(
    spec: ProbeSpec,
    device: Device,
    budget: Budget,
    history: Sequence[TrialRecord],
    verdict: Verdict,
    problem: TrialError | None,
) -> ProbeResult:
    """Build the result from the history of a running probe or of a ledger."""
    best = best_fit(spec.space, history)
    return ProbeResult(
        verdict=verdict,
        spec=spec,
        device=device,
        budget=budget,
        records=tuple(history),
        best=best,
        refused_precisions=refused_precisions(history),
        buckets=buckets_found(spec.space, budget, history),
        frontier=frontier(spec.space, history, budget),
        next_larger=None if best is None else next_larger(spec.space, history, best.candidate, budget),
        problem=problem,
    )


def _data_does_not_match(outcome: Outcome) -> bool:
    return outcome.kind is Kind.CRASH and outcome.stage is Stage.DATA


def _after_crash(spec: ProbeSpec, history: Sequence[TrialRecord], failed: Failed, observer: Observer) -> _Stop | None:
    """Stop the search, unless an answer is possible without the crashed trial. Then notify the observer of the loss."""
    trial, reason = history[-1].trial, " ".join(failed.error.message.split())
    if trial.aim is Aim.BUCKETS:
        observer.notice(f"no buckets: {reason}")
    elif trial.aim is Aim.TIMING:
        observer.notice(f"the time cost of rematerialisation is unknown: {reason}")
    else:
        refused, precision = refused_precisions(history), trial.candidate.precision
        if precision not in refused or set(spec.space.precisions) <= set(refused):
            return Verdict.FAILED, failed.error
        observer.notice(f"{precision} is refused: {reason}")
    return None


def _conclude(spec: ProbeSpec, history: Sequence[TrialRecord]) -> _Stop:
    """Return the verdict of a search with no trials left to run."""
    if best_fit(spec.space, history) is not None:
        return Verdict.TUNED, None
    if set(spec.space.precisions) <= set(refused_precisions(history)):
        return Verdict.FAILED, history[-1].outcome.error
    return Verdict.NOTHING_FITS, None


def _stop_before(trial: Trial | None, code: str, new_trials: int) -> _Stop:
    """Return the verdict of a search that a limit stops before this trial."""
    if trial is not None and trial.aim is Aim.TIMING:
        return Verdict.TUNED, None  # the answer is complete without it
    message = f"stopped by --{code.replace('_', '-')} after {format_count(new_trials, 'more trial')}"
    return Verdict.STOPPED, TrialError(code=code, message=message)


def _interrupted(trials: int) -> TrialError:
    return TrialError(
        code="interrupted",
        message=f"interrupted; the ledger keeps {format_count(trials, 'trial')}",
        hint="run the same command again to continue",
    )


def _why_no_buckets(history: Sequence[TrialRecord]) -> str:
    """Return why the answer has no buckets, after the search tried them; empty if it did not try them to the end."""
    records = [record for record in history if record.trial.aim is Aim.BUCKETS]
    if not records or any(record.outcome.kind is Kind.CRASH for record in records):
        return ""
    turns = [record for record in records if record.buckets]
    full = [record for record in turns if record.trial.purpose is Purpose.CONFIRM]
    if not full:
        return "no buckets: no batch fits at one of the lengths"
    sizes = f"from {_sizes(full[0])} down to {_sizes(full[-1])}"
    fitted = [record for record in turns if record.outcome.kind is Kind.FITS]
    if any(record in full for record in fitted):
        return f"no buckets: alternating batches fit too rarely to rely on, {sizes}"
    too_small = f"; {_sizes(fitted[0])} fit, but are too small to be worth it" if fitted else ""
    return f"no buckets: alternating batches exceed the budget, {sizes}{too_small}"


def _sizes(record: TrialRecord) -> str:
    return ", ".join(f"{size} of length {length}" for length, size in record.buckets)
