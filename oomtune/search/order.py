"""In which order a probe asks: first for the answer, then for buckets, then for what the answer costs in time."""

from __future__ import annotations

from collections.abc import Sequence

from oomtune.domain import Budget, SearchSpace, Trial, TrialRecord
from oomtune.search.buckets import next_bucket_trial
from oomtune.search.plan import next_trial
from oomtune.search.timing import next_timing_trial


def next_trial_of_all(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> Trial | None:
    """The trial that history calls for; None when all is known."""
    return (
        next_trial(space, budget, history)
        or next_bucket_trial(space, budget, history)
        or next_timing_trial(space, history)
    )
