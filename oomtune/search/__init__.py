"""Choose the next trial, and say what the answer is so far: pure functions of space, budget and history.

A lane is a candidate without its batch size, and memory grows with the batch along it. Its first trial climbs through
many sizes in one process, which shows the curve and roughly where it meets the budget: the edge. `lanes` keeps apart
what history proves (the largest batch that fitted, the smallest that failed) from `belief`, a bell curve over where the
edge lies, drawn from every measured peak. `next_size` tries the batch that would close the lane if it is likely to fit,
else the middle of the belief. A surprise makes the next step longer, and three trials that have not halved the bracket
lead to its middle, so the search is never slower than bisection. `plan` picks the lane: only those that may still beat
the best so far, by what the curves of other lanes predict (`curves`). The last trial confirms the answer (`answer`).

Nothing here keeps state, reads a clock or touches a file, so resuming a probe is replaying its ledger.
"""

from oomtune.search.answer import best_fit, frontier, next_larger, refused_precisions
from oomtune.search.buckets import buckets_found
from oomtune.search.followups import next_trial_of_all
from oomtune.search.forecast import time_ahead_s
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
