"""Running what is checked, and the verdict on it. What would fail a pipeline has to be seen twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from oomtune.domain import CheckResult, CheckVerdict, Kind, Outcome, Trial, TrialError, TrialRecord
from oomtune.observer import Observer
from oomtune.trials.runner import Runner
from oomtune.units import format_bytes

# Peaks differ from run to run. A crash does not: that is the model.
_RUNS = 2


def run_trials(
    result: CheckResult, trials: Sequence[Trial], runner: Runner, observer: Observer
) -> tuple[CheckResult, list[TrialRecord]]:
    """The verdict, and every trial with its own outcome."""
    history: list[TrialRecord] = []
    for trial in trials:
        for _ in range(_RUNS):
            observer.trial_started(trial, len(history) + 1)
            outcome = runner.run(trial)
            history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome))
            observer.trial_ended(history[-1], history)
            result = _with_outcome(result, trial, outcome)
            if result.verdict in (CheckVerdict.FITS, CheckVerdict.BROKEN):
                break
        if result.verdict is not CheckVerdict.FITS:
            break
    return result, history


def _with_outcome(result: CheckResult, trial: Trial, outcome: Outcome) -> CheckResult:
    """What the evidence says of memory is said of the configuration itself, not of its buckets by turns."""
    if trial.for_buckets:
        result = dataclasses.replace(result, buckets_outcome=outcome)
    else:
        result = dataclasses.replace(result, outcome=outcome)
    verdict = _verdict(outcome, None if trial.for_buckets else result.growth, result.tolerance)
    return dataclasses.replace(result, verdict=verdict, problem=_problem(result, outcome))


def _problem(result: CheckResult, outcome: Outcome) -> TrialError | None:
    error = outcome.error
    if error is None or not outcome.over_headroom or outcome.peak_bytes is None:
        return error
    budget, allowed = result.budget, result.allowed_bytes
    and_more = "" if allowed == budget.budget_bytes else f", and over the {format_bytes(allowed)} that noise explains"
    return dataclasses.replace(
        error,
        message=f"it ran, but its peak of {format_bytes(outcome.peak_bytes)} is over the budget of "
        f"{format_bytes(budget.budget_bytes)} (the limit of {format_bytes(budget.limit_bytes)} less "
        f"{budget.headroom:.0%} headroom){and_more}",
    )


def _verdict(outcome: Outcome, growth: float | None, tolerance: float) -> CheckVerdict:
    if outcome.kind is Kind.CRASH:
        return CheckVerdict.BROKEN
    if outcome.kind is not Kind.FITS:
        return CheckVerdict.DOES_NOT_FIT
    return CheckVerdict.USES_MORE if growth is not None and growth > tolerance else CheckVerdict.FITS
