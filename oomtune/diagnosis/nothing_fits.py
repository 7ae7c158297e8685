"""What to do when nothing fits: three things, for this spec and this failure."""

from __future__ import annotations

from oomtune.diagnosis import Diagnosis, classify
from oomtune.diagnosis.remedies import Tried, remedies
from oomtune.domain import Budget, Candidate, ProbeResult, ProbeSpec, TrialError
from oomtune.units import format_bytes


def what_to_try(
    spec: ProbeSpec,
    budget: Budget,
    smallest: Candidate,
    needed_bytes: int | None,
    error: TrialError | None = None,
    *,
    flags: tuple[str, ...] = (),
) -> list[str]:
    """The first three remedies that this spec has not used yet. `error` is what the failed trial said, `flags` are what
    asked for it."""
    read = classify(error.message if error else "")
    # A trial that did not fit ran out of memory, whatever words it left.
    diagnosis = read if read.is_memory else Diagnosis(kind="device_oom", failed=True)
    tried = Tried(spec=spec, budget=budget, candidate=smallest, needed_bytes=needed_bytes, flags=flags)
    known = [f"{remedy.what}: {remedy.flag}" if remedy.flag else remedy.what for remedy in remedies(diagnosis, tried)]
    # Where memory is free and in pieces, it is the allocator that can help; not where more is needed than there is.
    return [error.hint, *known][: len(known)] if error and _is_to_blame(error, budget, needed_bytes) else known


def smallest_failure(result: ProbeResult) -> tuple[Candidate, TrialError]:
    """Where nothing fits: the smallest configuration that did not, and why. In a precision that was refused some may
    have fitted: memory is not why that is no answer."""
    failed = [
        (record.ended_at, record.outcome.error)
        for record in result.records
        if record.outcome.error is not None and record.trial.candidate.precision not in result.refused_precisions
    ]
    return min(failed, key=lambda one: one[0].tokens)


def nothing_fits(result: ProbeResult, smallest: Candidate, needed_bytes: int | None, error: TrialError) -> TrialError:
    """What is said when nothing fits: of the smallest configuration that was tried, what it needs and what to try.
    `needed_bytes` is what it used when it had more memory, where that was measured."""
    budget = result.budget
    need = error.message if needed_bytes is None else f"it needs {format_bytes(needed_bytes)}"
    if needed_bytes is not None and _is_to_blame(error, budget, needed_bytes):
        need += f", yet {error.message}"
    return TrialError(
        code="nothing_fits",
        message=f"nothing fits in {format_bytes(budget.budget_bytes)} (the limit of "
        f"{format_bytes(budget.limit_bytes)} less {budget.headroom:.0%} headroom): the smallest configuration tried "
        f"was {smallest}, and {need}",
        hint="\n".join(what_to_try(result.spec, budget, smallest, needed_bytes, error)),
    )


def _is_to_blame(error: TrialError, budget: Budget, needed_bytes: int | None) -> bool:
    """Is it fragmentation that keeps this from fitting?"""
    return error.is_fragmentation and (needed_bytes is None or needed_bytes <= budget.limit_bytes)
