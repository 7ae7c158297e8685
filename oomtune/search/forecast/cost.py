"""Whether a trial that may be the answer is run at full length at once.

At full length it costs its further steps, for nothing if a larger batch fits too. Run short, it costs a trial more if
none does. Where building the model is what takes the time, that trial is the dearer; where steps are slow, they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from oomtune.domain import SearchSpace, TrialRecord
from oomtune.search.forecast.pace import ran

# How likely a batch that fits is the answer, while larger ones are in question: so often it was, over recorded curves.
_LAST = 0.6


def full_length_pays(space: SearchSpace, history: Sequence[TrialRecord], batch: int) -> bool:
    """Is it cheaper to run this batch, above which others are in question, as long as an answer must be?"""
    for record in reversed(history):
        sizes = ran(record)
        if record.outcome.duration_s > 0 and sizes:
            size, step_s, _ = max(sizes)
            overhead_s = max(0.0, record.outcome.duration_s - sum(seconds * count for _, seconds, count in sizes))
            further_s = space.confirm_steps * step_s * batch / size
            return further_s <= _LAST * (overhead_s + further_s)
    return True
