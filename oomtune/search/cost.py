"""What trials cost, by those that ran; and whether a trial that may be the answer is run at full length at once.

At full length it costs its further steps, for nothing if a larger batch fits too. Run short, it costs a trial more if
none does. Where building the model is what takes the time, that trial is the dearer; where steps are slow, they are.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from oomtune.domain import Purpose, SearchSpace, TrialRecord

# How likely a batch that fits is the answer, while larger ones are in question: so often it was, over recorded curves.
_LAST = 0.6
# A size of a climb takes about as long as this many steps, validation included.
_STEPS_A_SIZE = 6
# What a trial takes beside one that climbs: all build the same model, and run more or fewer steps of it.
_OF_A_CLIMB = {Purpose.CALIBRATE: 1.0, Purpose.SEARCH: 0.6, Purpose.CONFIRM: 1.0}


def effort(purposes: Iterable[Purpose]) -> float:
    """What trials for these purposes cost together, in climbs."""
    return sum(_OF_A_CLIMB[purpose] for purpose in purposes)


def seconds_of_effort(history: Sequence[TrialRecord]) -> float:
    """What a climb takes, by all that ran."""
    return statistics.mean(record.outcome.duration_s / _OF_A_CLIMB[record.trial.purpose] for record in history)


def full_length_pays(space: SearchSpace, history: Sequence[TrialRecord], batch: int) -> bool:
    """Is it cheaper to run this batch, above which others are in question, as long as an answer must be?"""
    for record in reversed(history):
        ran = _ran(record)
        if record.outcome.duration_s > 0 and ran:
            size, step_s, _ = max(ran)
            overhead_s = max(0.0, record.outcome.duration_s - sum(seconds * count for _, seconds, count in ran))
            further_s = space.confirm_steps * step_s * batch / size
            return further_s <= _LAST * (overhead_s + further_s)
    return True


def _ran(record: TrialRecord) -> list[tuple[int, float, int]]:
    """The sizes that a trial ran, what a step of each took in seconds, and how many there were of it."""
    outcome = record.outcome
    if outcome.points:
        return [(point.batch_size, point.step_ms / 1000, _STEPS_A_SIZE) for point in outcome.points]
    if outcome.step_ms is None:
        return []
    own = (record.trial.candidate.batch_size, outcome.step_ms / 1000, outcome.steps_run + 1)
    return [own, *((point.batch_size, point.step_ms / 1000, _STEPS_A_SIZE) for point in outcome.further)]
