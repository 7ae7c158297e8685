"""Advice for a spec of which nothing fits: what this spec has not tried yet, for the error that its trial had."""

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

    `error` is that of the failed trial, `flags` are the ones that chose this configuration."""
    reading = classify(error.message if error else "")
    # A trial that did not fit ran out of memory, whatever its message says.
    diagnosis = reading if reading.is_memory else Diagnosis(kind="device_oom", failed=True)
    tried = Tried(spec=spec, budget=budget, candidate=smallest, needed_bytes=needed_bytes, flags=flags)
    advice = [f"{remedy.what}: {remedy.flag}" if remedy.flag else remedy.what for remedy in remedies(diagnosis, tried)]
    # Another allocator helps when enough memory is free, but in pieces.
    return [error.hint, *advice][: len(advice)] if error and _is_to_blame(error, budget, needed_bytes) else advice


def smallest_failure(result: ProbeResult) -> tuple[Candidate, TrialError]:
    """Return the smallest configuration that did not fit, and why.

    Precisions that were refused are left out: what ran in them may have fitted."""
    failures = [
        (record.ended_at, record.outcome.error)
        for record in result.records
        if record.outcome.error is not None and record.trial.candidate.precision not in result.refused_precisions
    ]
    return min(failures, key=lambda failure: failure[0].tokens)


def nothing_fits_error(
    result: ProbeResult, smallest: Candidate, needed_bytes: int | None, error: TrialError
) -> TrialError:
    """Return the error of a probe of which nothing fits: the smallest configuration, its need, and what to try.

    `needed_bytes` is what it used when it ran with more memory, if that was measured."""
    budget = result.budget
    need = error.message if needed_bytes is None else f"it needs {format_bytes(needed_bytes)}"
    if needed_bytes is not None and _is_to_blame(error, budget, needed_bytes):
        need += f", but {error.message}"
    return TrialError(
        code="nothing_fits",
        message=f"nothing fits in {format_bytes(budget.budget_bytes)} ({budget.origin}): the smallest configuration "
        f"tried was {smallest}, and {need}",
        hint="\n".join(advice_for(result.spec, budget, smallest, needed_bytes, error)),
    )


def _is_to_blame(error: TrialError, budget: Budget, needed_bytes: int | None) -> bool:
    """Return True if fragmentation keeps the configuration from fitting: the limit alone would suffice."""
    return error.is_fragmentation and (needed_bytes is None or needed_bytes <= budget.limit_bytes)
