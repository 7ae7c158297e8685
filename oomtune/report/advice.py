"""What to do when nothing fits: three things, for this spec and this failure."""

from __future__ import annotations

from oomtune.diagnosis import Diagnosis, classify
from oomtune.diagnosis.remedies import Tried, remedies
from oomtune.domain import Budget, Candidate, ProbeSpec, TrialError


def what_to_try(
    spec: ProbeSpec, budget: Budget, smallest: Candidate, needed_bytes: int | None, error: TrialError | None = None
) -> list[str]:
    """The first three remedies that this spec has not used yet. `error` is what the failed trial said."""
    read = classify(error.message if error else "")
    # A trial that did not fit ran out of memory, whatever words it left.
    diagnosis = read if read.is_memory else Diagnosis(kind="device_oom", failed=True)
    tried = Tried(spec=spec, budget=budget, candidate=smallest, needed_bytes=needed_bytes)
    known = [f"{remedy.what}: {remedy.flag}" if remedy.flag else remedy.what for remedy in remedies(diagnosis, tried)]
    # Where memory is free and in pieces, it is the allocator that can help.
    return [error.hint, *known][: len(known)] if error and error.is_fragmentation else known
