"""Running what is checked, and the verdict on it. What would fail a pipeline has to be seen twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from oomtune.domain import CheckResult, CheckVerdict, Kind, Outcome, Trial, TrialRecord
from oomtune.observer import Observer
from oomtune.trials.runner import Runner

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
    return dataclasses.replace(result, verdict=verdict, problem=outcome.error)


def _verdict(outcome: Outcome, growth: float | None, tolerance: float) -> CheckVerdict:
    if outcome.kind is Kind.CRASH:
        return CheckVerdict.BROKEN
    if outcome.kind is not Kind.FITS:
        return CheckVerdict.DOES_NOT_FIT
    return CheckVerdict.USES_MORE if growth is not None and growth > tolerance else CheckVerdict.FITS
