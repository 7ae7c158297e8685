"""Search again from what a check saw, and rewrite the tuned config.

The search covers the lane of the answer, or everything that an edited spec allows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from oomtune.domain import (
    CheckResult,
    CheckVerdict,
    Kind,
    ProbeResult,
    ProbeSpec,
    TrialError,
    TrialRecord,
    Verdict,
)
from oomtune.domain.observer import Observer
from oomtune.session import Limits, run_session
from oomtune.trials.runner import Runner
from oomtune.units import format_bytes


def update(
    result: CheckResult,
    records: Sequence[TrialRecord],
    spec: ProbeSpec,
    runner: Runner,
    observer: Observer,
    write: Callable[[ProbeResult], ProbeResult],
) -> CheckResult:
    """Return the verdict after a new search; `write` is called only for a confirmed answer.

    A broken model is not searched. Raises `KeyboardInterrupt` if the search was interrupted."""
    if result.verdict is CheckVerdict.BROKEN:
        return result
    searched = run_session(
        spec if result.uses_edited_spec else dataclasses.replace(spec, space=spec.space.only(result.candidate.lane)),
        result.device,
        result.budget,
        runner=runner,
        ledger=[],
        earlier=records,
        observer=observer,
        limits=Limits(),
    )
    match searched.verdict:
        case Verdict.INTERRUPTED:
            raise KeyboardInterrupt
        case Verdict.TUNED:
            return _updated(result, write(searched))
        case Verdict.NOTHING_FITS:
            problem = _nothing_fits(searched)
            return dataclasses.replace(result, verdict=CheckVerdict.DOES_NOT_FIT, problem=problem, updated=searched)
        case _:
            return dataclasses.replace(result, verdict=CheckVerdict.BROKEN, problem=searched.problem, updated=searched)


def _updated(result: CheckResult, searched: ProbeResult) -> CheckResult:
    """Return the result with the new answer; problems of the old one and its evidence no longer apply."""
    best = searched.best
    assert best is not None, "a search that ends well has an answer"
    return dataclasses.replace(
        result,
        verdict=CheckVerdict.UPDATED,
        candidate=best.candidate,
        candidate_before=result.candidate,
        outcome=best.confirmed_by.outcome if best.confirmed_by else None,
        buckets_outcome=searched.buckets.confirmed_by.outcome if searched.buckets else None,
        expected_peak_bytes=None,
        not_compared="",
        problem=None,
        updated=searched,
    )


def _nothing_fits(searched: ProbeResult) -> TrialError:
    failures = [record for record in searched.records if record.outcome.kind is not Kind.FITS]
    smallest = min(failures or searched.records, key=lambda record: record.trial.candidate.batch_size)
    reason = smallest.outcome.error.message if smallest.outcome.error else smallest.outcome.kind.value
    return TrialError(
        code="nothing_fits",
        message=f"not even {smallest.trial.candidate} fits in {format_bytes(searched.budget.budget_bytes)}: {reason}",
    )
