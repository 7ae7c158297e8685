"""The largest batch that fits with a variation: found as a probe finds it, in processes of their own.

A measurement goes on to larger batches in its own process, which is quick and no proof: a process that has run smaller
ones may need more than a fresh one, or less. So that is the climb which a search begins with, and the search goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from oomtune.commands.explain.bench import Bench
from oomtune.commands.explain.measuring import FURTHEST, Measurement, upwards
from oomtune.domain import (
    Budget,
    Candidate,
    Certainty,
    Climb,
    Climbed,
    Confirm,
    Cost,
    Failed,
    FailedSize,
    Kind,
    Point,
    ProbeSpec,
    Search,
    SearchSpace,
    Stage,
    TrialError,
    TrialRecord,
    runs_of,
)
from oomtune.search import frontier, next_trial

# How closely the edge is looked for.
_RESOLUTION = 0.04
# More than so many are a probe's work.
_MOST_TRIALS = 4
# The first process begins by this share below what the climb promises, and goes on from there.
_BELOW = 0.07
# What a process went on to counts as run in one of its own when it had just run a batch that is not much smaller.
_NEAR = 1.1
# How long the trials of one variation may take in all. What takes longer is predicted.
_PATIENCE_S = 45.0
# A run of as many steps as prove a probe's answer is worth it where these should take no longer than this.
_LONG_RUN_S = 6.0


def with_proven_edge(
    cost: Cost,
    what: str,
    spec: ProbeSpec,
    measured: Measurement,
    budget: Budget,
    bench: Bench,
    *,
    compiles: bool = False,
) -> Cost:
    """The cost with the batch that a search finds in a few trials; as it was, where not even one is worth its time."""
    space, history = _space(measured.candidate), [_as_a_climb(measured)]
    spent_s, last_s = 0.0, measured.outcome.duration_s
    while len(history) <= _MOST_TRIALS and spent_s + last_s <= _PATIENCE_S:
        fitted = _fitted(history[1:])
        trial = next_trial(space, budget, history)
        if trial is None or isinstance(trial, Climb) or trial.candidate.batch_size in fitted:
            break  # known, but for the long run that a probe ends with
        trial = Search(candidate=trial.candidate, further=trial.further)
        if len(history) == _MOST_TRIALS and not fitted:
            # The climb has misled: from what the candidate took alone one comes to the edge from below.
            trial = upwards(measured.candidate.lane.at(measured.safe_batch_size(budget)))
        elif not fitted and not compiles:
            trial = _from_below(trial, measured.candidate.batch_size)
        # XLA compiles anew for each size.
        if compiles:
            trial = dataclasses.replace(trial, further=())
        if _is_short(trial, spec, measured):
            # As long as an answer must run: at the edge some steps are not like the first.
            trial = Confirm(candidate=trial.candidate, further=trial.further, further_within_s=trial.further_within_s)
        outcome = bench.run(f"{what}, batch {trial.candidate.batch_size:,}", spec, budget, trial)
        history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome))
        spent_s, last_s = spent_s + outcome.duration_s, outcome.duration_s
        if outcome.kind not in (Kind.FITS, Kind.DEVICE_OOM):
            break
    return _proven(cost, space, history, measured.candidate, budget) if len(history) > 1 else cost


def _from_below(trial: Search, least: int) -> Search:
    """The same, from a little less on: one process then mostly shows both what fits and what does not."""
    batch = trial.candidate.batch_size
    below = max(least, int(batch * (1 - _BELOW)))
    if below >= batch:
        return trial
    return dataclasses.replace(trial, candidate=trial.candidate.lane.at(below), further=(batch, *trial.further))


def _is_short(trial: Search, spec: ProbeSpec, measured: Measurement) -> bool:
    """Return True if running the trial as long as a probe's answer takes little time."""
    grown = trial.candidate.batch_size / measured.candidate.batch_size
    expected_s = spec.trial.confirm_steps * (measured.outcome.step_ms or 0.0) * grown / 1000
    return expected_s <= _LONG_RUN_S


def _space(candidate: Candidate) -> SearchSpace:
    sizes = range(1, candidate.batch_size * FURTHEST + 1)
    return SearchSpace(batch_sizes=sizes, resolution=_RESOLUTION).only(candidate.lane)


def _as_a_climb(measured: Measurement) -> TrialRecord:
    points, failed = measured.points, measured.outcome.further_failed
    sizes = tuple(point.batch_size for point in points)
    return TrialRecord(
        number=1,
        trial=Climb(lane=measured.candidate.lane, sizes=sizes),
        outcome=Climbed(peak_bytes=points[-1].peak_bytes, points=points) if failed is None else _ended(points, failed),
    )


def _ended(points: tuple[Point, ...], failed: FailedSize) -> Failed:
    return Failed(
        kind=failed.kind,
        stage=Stage.DONE,
        error=TrialError(code=failed.kind.value, message=""),
        batch_size=failed.batch_size,
        peak_bytes=failed.peak_bytes,
        points=points,
    )


def _fitted(records: Sequence[TrialRecord]) -> set[int]:
    """The batches that ran in a process of their own, or as good as that."""
    return {
        run.candidate.batch_size
        for record in records
        for run in runs_of([record])
        if run.fits and run.candidate.batch_size <= _NEAR * record.trial.candidate.batch_size
    }


def _proven(
    cost: Cost, space: SearchSpace, history: Sequence[TrialRecord], candidate: Candidate, budget: Budget
) -> Cost:
    """The largest of what ran in processes of their own; the candidate did, whatever came after it."""
    alone = max((point.batch_size for point in frontier(space, history[1:], budget)), default=0)
    (whole,) = frontier(space, history, budget)
    certainty = Certainty.RAN if alone == whole.batch_size and whole.edge_known else Certainty.AT_LEAST
    if history[-1].outcome.kind is Kind.CRASH:
        certainty = Certainty.NO_LARGER  # a model may be made for batches of one size
    return dataclasses.replace(cost, largest_batch_size=max(alone, candidate.batch_size), certainty=certainty)
