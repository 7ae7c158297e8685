"""Running what is checked, and the verdict on it. What would fail a pipeline has to be seen twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from oomtune.domain import BucketTurns, CheckResult, CheckVerdict, Kind, Outcome, Trial, TrialError, TrialRecord
from oomtune.domain.observer import Observer
from oomtune.trials.outcome import over_headroom_error
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
    return _as_far_as_it_says(result), history


def _as_far_as_it_says(result: CheckResult) -> CheckResult:
    """What runs out of less memory than the card has may yet fit the card."""
    ran_out = result.deciding is not None and result.deciding.kind in (Kind.DEVICE_OOM, Kind.HOST_OOM)
    if result.card_limit_bytes is None or result.verdict is not CheckVerdict.DOES_NOT_FIT or not ran_out:
        return result
    return dataclasses.replace(result, verdict=CheckVerdict.UNDECIDED)


def _with_outcome(result: CheckResult, trial: Trial, outcome: Outcome) -> CheckResult:
    """What the evidence says of memory is said of the configuration itself, not of its buckets by turns."""
    if isinstance(trial, BucketTurns):
        result = dataclasses.replace(result, buckets_outcome=outcome)
    else:
        result = dataclasses.replace(result, outcome=outcome)
    verdict = _verdict(outcome, None if isinstance(trial, BucketTurns) else result.growth, result.tolerance)
    return dataclasses.replace(result, verdict=verdict, problem=_problem(result, outcome))


def _problem(result: CheckResult, outcome: Outcome) -> TrialError | None:
    error = outcome.error
    if error is None or not outcome.over_headroom or outcome.peak_bytes is None:
        return error
    return over_headroom_error(outcome.peak_bytes, result.budget, result.allowed_bytes)


def _verdict(outcome: Outcome, growth: float | None, tolerance: float) -> CheckVerdict:
    if outcome.kind is Kind.CRASH:
        return CheckVerdict.BROKEN
    if outcome.kind is not Kind.FITS:
        return CheckVerdict.DOES_NOT_FIT
    return CheckVerdict.USES_MORE if growth is not None and growth > tolerance else CheckVerdict.FITS
