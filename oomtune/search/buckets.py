"""Batches by length: where the data's lengths vary, shorter samples train in larger batches.

The boundaries are those that leave the least padding. Each bucket's batch is searched to its own edge like any lane.
Then all of them train in one process by turns, as they will in real training, and when that needs more than the budget
they shrink together until it does not.
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
from oomtune.search.answer import best_fit, largest_fit
from oomtune.search.lanes import Evidence
from oomtune.search.next_size import last_up_to
from oomtune.search.plan import next_trial_by
from oomtune.search.tuning import TUNING

Counts = tuple[tuple[int, int], ...]
"""The lengths of the data's samples, ascending, each with how many samples have it."""


def next_bucket_trial(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> Trial | None:
    """Return the trial that buckets call for once the answer is confirmed; None when they are known, or useless."""
    best = best_fit(space, history)
    if best is None or best.confirmed_by is None:
        return None
    candidate = best.candidate
    edges = boundaries(space.length_counts, candidate.sequence_length or 0, space.most_buckets)
    if not edges or any(record.outcome.kind is Kind.CRASH and record.trial.aim is Aim.BUCKETS for record in history):
        return None
    turns = _turns(history, candidate.lane, edges)
    if not turns:
        sizes = [_size(space, candidate.tokens / edge * TUNING.bucket_ample) for edge in edges]
        return _taking_turns(Purpose.SEARCH, candidate, edges, sizes)
    evidence = Evidence.of_single_lanes(history)
    known = [replace(candidate.lane, sequence_length=edge) for edge in edges]
    for edge in reversed(edges[:-1]):
        trial = next_trial_by(_only(space, candidate, edge), budget, evidence, beside=known)
        if trial is not None:
            return replace(trial, aim=Aim.BUCKETS)
    return _next_turn(space, budget, candidate, edges, turns, evidence)


def buckets_found(space: SearchSpace, budget: Budget, history: Sequence[TrialRecord]) -> Buckets | None:
    """Return the buckets that took turns for as long as an answer must run, and fitted."""
    best = best_fit(space, history)
    if best is None:
        return None
    edges = boundaries(space.length_counts, best.candidate.sequence_length or 0, space.most_buckets)
    full = _at_full_size(_turns(history, best.candidate.lane, edges))
    if not _are_settled(full, budget):
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
    evidence: Evidence,
) -> Trial | None:
    """Return a trial of all buckets by turns at their edges, each time with smaller batches than before."""
    full = _at_full_size(turns)
    fits = [largest_fit(_only(space, candidate, edge), evidence) for edge in edges[:-1]]
    whole = [fit.candidate.batch_size for fit in fits if fit is not None] + [candidate.batch_size]
    if _are_settled(full, budget) or len(whole) < len(edges) or len(full) > TUNING.bucket_most_shrinks:
        return None
    whole = [max(whole[at:]) for at in range(len(whole))]  # what holds longer samples holds as many shorter ones
    shrunk = TUNING.bucket_shrink ** len(full)
    return _taking_turns(Purpose.CONFIRM, candidate, edges, [_size(space, size * shrunk) for size in whole])


def _at_full_size(turns: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [record for record in turns if record.trial.purpose is Purpose.CONFIRM]


def _are_settled(full: Sequence[TrialRecord], budget: Budget) -> bool:
    """Return whether the last turns prove the buckets. How batches of several shapes cut memory up differs from run to
    run, so several in a row have to fit; one is enough where memory is ample."""
    last = full[-TUNING.bucket_turns :]
    if not last or any(record.outcome.kind is not Kind.FITS for record in last):
        return False
    ample = (last[-1].outcome.peak_bytes or 0) <= (1 - TUNING.bucket_ample) * budget.budget_bytes
    return ample or len(last) == TUNING.bucket_turns


def _turns(history: Sequence[TrialRecord], lane: Lane, edges: tuple[int, ...]) -> list[TrialRecord]:
    """Return the trials in which buckets with these boundaries took turns."""
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


def _only(space: SearchSpace, candidate: Candidate, edge: int) -> SearchSpace:
    """Return the space of one bucket."""
    one_lane = space.only(replace(candidate.lane, sequence_length=edge))
    return replace(one_lane, effective_batch_size=None, objective=Objective.BATCH_SIZE, every_lane=False)


@lru_cache(maxsize=64)
def boundaries(counts: Counts, length: int, most: int) -> tuple[int, ...]:
    """Return the ends of up to `most` buckets, the last of them `length`, that leave the least padding; none when a
    single bucket does nearly as well."""
    if len(counts) < 2 or length < 2 or most < 2:
        return ()
    # The choice takes time with the square of the number of ends, so long samples get coarser ones.
    multiple = TUNING.bucket_multiple * 2 ** max(0, math.ceil(math.log2(length / TUNING.bucket_multiple / 128)))
    ends = sorted({min(length, math.ceil(size / multiple) * multiple) for size, _ in counts} | {length})
    chosen = _least_padding(ends, counts, most)
    return chosen if _tokens(counts, chosen) <= (1 - TUNING.bucket_worth) * _tokens(counts, (length,)) else ()


def _least_padding(ends: Sequence[int], counts: Counts, most: int) -> tuple[int, ...]:
    """Return the choice of up to `most` ends, the last included, whose batches hold the fewest tokens."""
    up_to = [sum(many for size, many in counts if min(size, ends[-1]) <= end) for end in ends]
    # best[i] after k rounds: the fewest tokens for all samples up to ends[i] in k + 1 buckets, and the choice of ends.
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


def _tokens(counts: Counts, edges: Sequence[int]) -> int:
    """Count the tokens of all samples, each padded to the end of its bucket or cut to the last."""
    return sum(next((edge for edge in edges if size <= edge), edges[-1]) * many for size, many in counts)


def share_padding(counts: Counts, edges: Sequence[int]) -> float:
    """Return the share of all tokens in these buckets that is padding."""
    return 1 - sum(min(size, edges[-1]) * many for size, many in counts) / _tokens(counts, edges)
