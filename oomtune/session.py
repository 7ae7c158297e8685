"""The only loop: ask the search, run the trial, record it, tell the observer; until the answer is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from oomtune.domain import (
    Aim,
    Budget,
    Device,
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
                verdict, problem = _stopped(trial, "max_trials", len(history) - len(earlier))
                break
            observer.trial_started(trial, len(history) + 1)
            outcome = runner.run(trial, within_s=None if limits.deadline is None else limits.deadline - clock())
            if _never_began(outcome) and len(history) == len(earlier):
                # The data is not what the model takes: no step ran, and this is said before any trial.
                verdict, problem = Verdict.FAILED, outcome.error
                break
            history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome))
            ledger.append(history[-1])
            observer.trial_ended(history[-1], history)
            if outcome.kind is Kind.CRASH and not _goes_on(spec, history, observer):
                verdict, problem = Verdict.FAILED, outcome.error
                break
    except TimeUp:
        verdict, problem = _stopped(trial, "time_limit", len(history) - len(earlier))
    except KeyboardInterrupt:
        verdict, problem = Verdict.INTERRUPTED, _interrupted(len(history))
    if verdict is Verdict.TUNED and best_fit(spec.space, history) is None:
        verdict = Verdict.NOTHING_FITS
        if set(refused_precisions(history)) >= set(spec.space.precisions):
            verdict, problem = Verdict.FAILED, history[-1].outcome.error
    result = result_of(spec, device, budget, history, verdict, problem)
    if verdict is Verdict.TUNED and result.buckets is None:
        _tell_of_given_up_buckets(history, observer)
    return replace(result, new_trials=len(history) - len(earlier))


def result_of(
    spec: ProbeSpec,
    device: Device,
    budget: Budget,
    history: Sequence[TrialRecord],
    verdict: Verdict,
    problem: TrialError | None,
) -> ProbeResult:
    """What history amounts to: the same while it is made, and when it is read again."""
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


def _never_began(outcome: Outcome) -> bool:
    return outcome.kind is Kind.CRASH and outcome.stage is Stage.DATA


def _goes_on(spec: ProbeSpec, history: Sequence[TrialRecord], observer: Observer) -> bool:
    """Is there an answer to be had although the last trial crashed? Then it is said what was given up for it."""
    record = history[-1]
    said = record.outcome.error.message if record.outcome.error else "they can not take turns"
    said = " ".join(said.split())  # a notice is one line
    refused, precision = refused_precisions(history), record.trial.candidate.precision
    if record.trial.aim is not Aim.ANSWER:
        # This model can't train on other lengths, or not without rematerialisation.
        lost = "no buckets" if record.trial.aim is Aim.BUCKETS else "what rematerialisation costs in time is not known"
        observer.notice(f"{lost}: {said}")
        return True
    if precision in refused and set(spec.space.precisions) - set(refused):
        observer.notice(f"{precision} is refused: {said}")
        return True
    return False


def _tell_of_given_up_buckets(history: Sequence[TrialRecord], observer: Observer) -> None:
    """Buckets that were tried to the end and are not in the answer."""
    of_buckets = [record for record in history if record.trial.aim is Aim.BUCKETS]
    if not of_buckets or any(record.outcome.kind is Kind.CRASH for record in of_buckets):
        return
    turns = [record for record in of_buckets if record.buckets]
    full = [record for record in turns if record.trial.purpose is Purpose.CONFIRM]
    if not full:
        observer.notice("no buckets: not every one of them has a batch that fits by itself")
        return
    fitted = [record for record in turns if record.outcome.kind is Kind.FITS]
    least = f"{_sizes(full[0])} down to {_sizes(full[-1])}"
    said = f"no buckets: by turns they did not stay within the budget with {least}"
    if any(record in full for record in fitted):
        said = f"no buckets: by turns they stayed within the budget too seldom to rely on, with {least}"
    elif fitted:
        said = f"{said}; {_sizes(fitted[0])} fitted, too small to be worth it"
    observer.notice(said)


def _sizes(record: TrialRecord) -> str:
    return ", ".join(f"{size} of {length}" for length, size in record.buckets)


def _stopped(before: Trial | None, code: str, trials: int) -> tuple[Verdict, TrialError | None]:
    """How a search ends that was stopped before this trial. The answer needs none that is only to be timed."""
    if before is not None and before.aim is Aim.TIMING:
        return Verdict.TUNED, None
    problem = TrialError(
        code=code, message=f"stopped by --{code.replace('_', '-')} after {format_count(trials, 'more trial')}"
    )
    return Verdict.STOPPED, problem


def _interrupted(trials: int) -> TrialError:
    return TrialError(
        code="interrupted",
        message=f"interrupted; the ledger keeps {format_count(trials, 'trial')}",
        hint="the same command goes on from there",
    )
