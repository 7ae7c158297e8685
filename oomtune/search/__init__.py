"""The search: what to try next, and what is best so far. Pure functions of space, budget and history.

Nothing here keeps state, reads a clock or touches a file, so resuming a probe is replaying its ledger, and any run
can be replayed exactly.
"""

from oomtune.search.answer import best_fit, frontier, next_larger, refused_precisions
from oomtune.search.buckets import buckets_found
from oomtune.search.forecast.remaining import time_ahead_s
from oomtune.search.order import next_trial_of_all
from oomtune.search.plan import next_trial

__all__ = [
    "best_fit",
    "buckets_found",
    "frontier",
    "next_larger",
    "next_trial",
    "next_trial_of_all",
    "refused_precisions",
    "time_ahead_s",
]
