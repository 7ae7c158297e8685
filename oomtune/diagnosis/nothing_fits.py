"""Advice for when nothing fits: the remedies that match the error and that the spec does not use yet."""

from __future__ import annotations

from oomtune.diagnosis import Diagnosis, classify
from oomtune.diagnosis.remedies import Tried, remedies
from oomtune.domain import Budget, Candidate, ProbeResult, ProbeSpec, TrialError
from oomtune.units import format_bytes


def advice_for(
    spec: ProbeSpec,
    budget: Budget,
    smallest: Candidate,
    needed_bytes: int | None,
    error: TrialError | None = None,
    *,
    flags: tuple[str, ...] = (),
) -> list[str]:
    """Return the first three remedies that this spec has not used yet.

    `error` is the error of the failed trial, `flags` are the command-line flags that chose this configuration.
    """
    diagnosis = classify(error.message if error else "")
    if not diagnosis.is_memory:
        # A trial that did not fit ran out of memory, whatever its message says.
        diagnosis = Diagnosis(kind="device_oom", failed=True)
    tried = Tried(spec=spec, budget=budget, candidate=smallest, needed_bytes=needed_bytes, flags=flags)
    advice = [f"{remedy.what}: {remedy.flag}" if remedy.flag else remedy.what for remedy in remedies(diagnosis, tried)]
    if error and _is_fragmentation_to_blame(error, budget, needed_bytes):
        return [error.hint, *advice][: len(advice)]
    return advice


def smallest_failure(result: ProbeResult) -> tuple[Candidate, TrialError]:
    """Return the smallest configuration that did not fit, and why.

    Ignore refused precisions: a candidate with a loss that is not finite may still have fitted.
    """
    failures = [
        (record.ended_at, record.outcome.error)
        for record in result.records
        if record.outcome.error is not None and record.trial.candidate.precision not in result.refused_precisions
    ]
    return min(failures, key=lambda failure: failure[0].tokens)


def nothing_fits_error(
    result: ProbeResult, smallest: Candidate, needed_bytes: int | None, error: TrialError
) -> TrialError:
    """Return the error of a probe in which nothing fits: the smallest configuration, its need, and what to try.

    `needed_bytes` is the peak of that configuration in a run with more memory, if there was one.
    """
    budget = result.budget
    need = error.message if needed_bytes is None else f"it needs {format_bytes(needed_bytes)}"
    if needed_bytes is not None and _is_fragmentation_to_blame(error, budget, needed_bytes):
        need += f", but {error.message}"
    return TrialError(
        code="nothing_fits",
        message=f"nothing fits in {format_bytes(budget.budget_bytes)} ({budget.origin}): the smallest configuration "
        f"tried was {smallest}, and {need}",
        hint="\n".join(advice_for(result.spec, budget, smallest, needed_bytes, error)),
    )


def _is_fragmentation_to_blame(error: TrialError, budget: Budget, needed_bytes: int | None) -> bool:
    """Return True if the configuration would fit into the limit without fragmentation."""
    return error.is_fragmentation and (needed_bytes is None or needed_bytes <= budget.limit_bytes)
