"""Batches by length: where the data's lengths vary, shorter samples train in larger batches.

The boundaries are those that leave the least padding. Each bucket's batch is searched to its own edge like any lane;
then all of them train in one process by turns, as they will, and when that needs more than the budget they shrink
together until it does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from oomtune.domain import (
    Aim,
    Buckets,
    BucketTurns,
    Budget,
    Candidate,
    Kind,
    Lane,
    Objective,
    Purpose,
    SearchSpace,
    Trial,
    TrialRecord,
)
from oomtune.search.answer import best_fit
from oomtune.search.axis import last_up_to
from oomtune.search.plan import next_trial

# Boundaries are multiples of this, as hardware likes its shapes, or of twice as much and so on for long samples.
_MULTIPLE = 8
_MOST_BOUNDARIES = 128
# Buckets have to save this share of the tokens, or they are not worth their trials.
_WORTH = 0.1
# The first time the buckets take turns only shows whether the model allows it: at this share of what may fit.
_GENTLE = 0.25
# When the turns need too much, every batch shrinks by this, this many times at most.
_SHRINK = 0.95
_MOST_SHRINKS = 10
# How batches of several shapes cut memory up differs from run to run, so the sizes that are taken are smaller by two
# more steps than the largest that fitted, and all three have to fit, each in an order of its own.
_IN_A_ROW = 3
# Where the largest batch allowed bounds the buckets and memory does not, once is enough: this much of it is free then.
_AMPLE = 0.25


def next_bucket_trial(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> Trial | None:
    """The trial that buckets call for once the answer is confirmed; None when they are known, or there are none."""
    best = best_fit(space, history)
    if best is None or best.confirmed_by is None:
        return None
    candidate = best.candidate
    edges = boundaries(space.length_counts, candidate.sequence_length or 0, space.most_buckets)
    turns = _turns(history, candidate.lane, edges)
    if not edges or any(record.outcome.kind is Kind.CRASH for record in history if record.trial.aim is Aim.BUCKETS):
        return None
    if not turns:
        sizes = [_size(space, candidate.tokens / edge * _GENTLE) for edge in edges]
        return _taking_turns(Purpose.SEARCH, candidate, edges, sizes)
    known = [_lane(candidate, edge) for edge in edges]
    for edge in reversed(edges[:-1]):
        trial = next_trial(_only(space, candidate, edge), budget, _of_lanes(history), beside=known)
        if trial is not None:
            return replace(trial, aim=Aim.BUCKETS)
    return _next_turn(space, budget, candidate, edges, turns, history)


def buckets_found(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> Buckets | None:
    """The buckets that took turns for as long as an answer must, and fitted."""
    best = best_fit(space, history)
    if best is None:
        return None
    edges = boundaries(space.length_counts, best.candidate.sequence_length or 0, space.most_buckets)
    full = _at_full_size(_turns(history, best.candidate.lane, edges))
    if not _settled(full, budget):
        return None
    return Buckets(
        boundaries=edges,
        batch_sizes=tuple(size for _, size in full[-1].buckets),
        share_padding=share_padding(space.length_counts, edges),
        confirmed_by=full[-1],
    )


def _next_turn(
    space: SearchSpace,
    budget: Budget,
    candidate: Candidate,
    edges: tuple[int, ...],
    turns: Sequence[TrialRecord],
    history: Sequence[TrialRecord],
) -> Trial | None:
    """All buckets by turns at their edges; smaller each time that was too much."""
    fits = [best_fit(_only(space, candidate, edge), _of_lanes(history)) for edge in edges[:-1]]
    whole = [fit.candidate.batch_size for fit in fits if fit is not None] + [candidate.batch_size]
    full = _at_full_size(turns)
    if _settled(full, budget) or len(whole) < len(edges) or len(full) > _MOST_SHRINKS:
        return None
    whole = [max(whole[at:]) for at in range(len(whole))]  # what holds longer samples holds as many shorter ones
    shrunk = _SHRINK ** len(full)
    return _taking_turns(Purpose.CONFIRM, candidate, edges, [_size(space, size * shrunk) for size in whole])


def _of_lanes(history: Sequence[TrialRecord]) -> list[TrialRecord]:
    """All that ran in single lanes, whatever for: for a bucket it counts alike."""
    return [
        replace(record, trial=replace(record.trial, aim=Aim.ANSWER))
        for record in history
        if not isinstance(record.trial, BucketTurns)
    ]


def _at_full_size(turns: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [record for record in turns if record.trial.purpose is Purpose.CONFIRM]


def _settled(full: Sequence[TrialRecord], budget: Budget) -> bool:
    last = full[-_IN_A_ROW:]
    if not last or any(record.outcome.kind is not Kind.FITS for record in last):
        return False
    return len(last) == _IN_A_ROW or (last[-1].outcome.peak_bytes or 0) <= (1 - _AMPLE) * budget.budget_bytes


def _turns(history: Sequence[TrialRecord], lane: Lane, edges: tuple[int, ...]) -> list[TrialRecord]:
    """The trials in which these buckets took turns."""
    return [
        record
        for record in history
        if edges and record.trial.candidate.lane == lane and tuple(edge for edge, _ in record.buckets) == edges
    ]


def _taking_turns(
    purpose: Literal[Purpose.SEARCH, Purpose.CONFIRM], candidate: Candidate, edges: Sequence[int], sizes: Sequence[int]
) -> BucketTurns:
    return BucketTurns(purpose=purpose, lane=candidate.lane, buckets=tuple(zip(edges, sizes, strict=True)))


def _size(space: SearchSpace, wanted: float) -> int:
    return last_up_to(space.batch_sizes, wanted) or space.batch_sizes[0]


def _lane(candidate: Candidate, edge: int) -> Lane:
    return replace(candidate.lane, sequence_length=edge)


def _only(space: SearchSpace, candidate: Candidate, edge: int) -> SearchSpace:
    """Return the space of one bucket."""
    one_lane = space.only(_lane(candidate, edge))
    return replace(one_lane, effective_batch_size=None, objective=Objective.BATCH_SIZE, every_lane=False)


@lru_cache(maxsize=64)
def boundaries(counts: tuple[tuple[int, int], ...], length: int, most: int) -> tuple[int, ...]:
    """The ends of up to `most` buckets, the last of them `length`, that leave the least padding; none when a single
    one does nearly as well."""
    if len(counts) < 2 or length < 2 or most < 2:
        return ()
    multiple = _MULTIPLE
    while length > multiple * _MOST_BOUNDARIES:
        multiple *= 2
    ends = sorted({min(length, math.ceil(size / multiple) * multiple) for size, _ in counts} | {length})
    chosen = _least_padding(ends, counts, most)
    return chosen if _tokens(counts, chosen) <= (1 - _WORTH) * _tokens(counts, (length,)) else ()


def _least_padding(ends: Sequence[int], counts: tuple[tuple[int, int], ...], most: int) -> tuple[int, ...]:
    """Of all choices of `most` ends that include the last, the one whose batches hold the fewest tokens."""
    up_to = [sum(many for size, many in counts if min(size, ends[-1]) <= end) for end in ends]
    # best[k][i]: the fewest tokens for all samples up to ends[i] in k + 1 buckets, and the choice that gives them.
    best: list[tuple[int, tuple[int, ...]]] = [(many * end, (end,)) for many, end in zip(up_to, ends, strict=True)]
    for _ in range(min(most, len(ends)) - 1):
        best = [
            min(
                [best[index]]
                + [
                    (best[before][0] + (up_to[index] - up_to[before]) * end, (*best[before][1], end))
                    for before in range(index)
                ]
            )
            for index, end in enumerate(ends)
        ]
    return best[-1][1]


def _tokens(counts: tuple[tuple[int, int], ...], edges: Sequence[int]) -> int:
    """How many tokens all samples have, each padded to the end of its bucket or cut to the last."""
    return sum(next((edge for edge in edges if size <= edge), edges[-1]) * many for size, many in counts)


def share_padding(counts: tuple[tuple[int, int], ...], edges: Sequence[int]) -> float:
    """The share of all tokens in these buckets that is padding."""
    return 1 - sum(min(size, edges[-1]) * many for size, many in counts) / _tokens(counts, edges)
