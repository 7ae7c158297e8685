"""What a probe runs after the answer is confirmed: the buckets, then what rematerialisation costs in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oomtune.domain import (
    Aim,
    Budget,
    Candidate,
    Kind,
    RematMode,
    Search,
    SearchSpace,
    Trial,
    TrialRecord,
    remat_slowdown,
)
from oomtune.search.answer import best_fit
from oomtune.search.buckets import next_bucket_trial
from oomtune.search.plan import next_trial


def next_trial_of_all(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> Trial | None:
    """Return the trial that history calls for, first for the answer and then for its follow-ups; None at the end."""
    return (
        next_trial(space, budget, history)
        or next_bucket_trial(space, budget, history)
        or next_timing_trial(space, history)
    )


def next_timing_trial(space: SearchSpace, history: Sequence[TrialRecord]) -> Search | None:
    """Return a short trial without rematerialisation, then one with it at the same batch; None when the cost in time
    is known or can't be measured."""
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
    # Without rematerialisation the whole batch does not fit, or it would be the answer.
    sizes = (max(1, candidate.batch_size // part) for part in (2, 4, 8))
    size = next((size for size in sizes if size not in tried), None)
    return None if size is None else _timing(replace(candidate.lane, remat=RematMode.NONE).at(size))


def _timing(candidate: Candidate) -> Search:
    return Search(candidate=candidate, aim=Aim.TIMING)
