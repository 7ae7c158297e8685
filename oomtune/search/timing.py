"""What rematerialisation costs in time, where nothing that the answer called for has shown it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oomtune.domain import (
    Aim,
    Candidate,
    Kind,
    RematMode,
    Search,
    SearchSpace,
    TrialRecord,
    remat_slowdown,
)
from oomtune.search.answer import best_fit

# Without it the same batch takes more memory than there is, or the search would not have been for it. So these parts.
_PARTS = (2, 4, 8)


def next_timing_trial(space: SearchSpace, history: Sequence[TrialRecord]) -> Search | None:
    """A short trial without rematerialisation, once the answer with it is confirmed, and one with it at the same batch.
    None when the cost is known, or can't be."""
    best = best_fit(space, history)
    if best is None or best.confirmed_by is None or best.candidate.remat is RematMode.NONE:
        return None
    candidate = best.candidate
    if remat_slowdown(candidate.lane, history) is not None:
        return None
    timed = [record for record in history if record.trial.aim is Aim.TIMING]
    if any(record.outcome.kind is Kind.CRASH or record.trial.candidate.lane == candidate.lane for record in timed):
        return None
    fitted = [record.trial.candidate.batch_size for record in timed if record.outcome.kind is Kind.FITS]
    if fitted:
        return _timing(candidate.lane.at(fitted[-1]))
    tried = {record.trial.candidate.batch_size for record in timed}
    sizes = (max(1, candidate.batch_size // part) for part in _PARTS)
    size = next((size for size in sizes if size not in tried), None)
    return None if size is None else _timing(replace(candidate.lane, remat=RematMode.NONE).at(size))


def _timing(candidate: Candidate) -> Search:
    return Search(candidate=candidate, aim=Aim.TIMING)
