"""Find the largest batch that fits with a variation, as a probe would: in fresh processes.

A measurement goes on to larger batches in its own process. That is quick but proves nothing: a process that has run
smaller batches may need more memory than a fresh one, or less. The measurement therefore only serves as the climb that
a search begins with, and the search continues from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from oomtune.commands.explain.bench import MAX_GROWTH, Bench, Measurement, with_larger_sizes
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

# How precisely the edge is searched.
_RESOLUTION = 0.04
# Finding it in more trials is the job of a probe.
_MAX_TRIALS = 4
# The first fresh process starts this share below the edge that the climb promises, and goes on from there.
_BELOW = 0.07
# A size counts as run in a fresh process if the process had just run a batch that is at most this much smaller.
_NEAR = 1.1
# How long the trials of one variation may take in all; beyond that the edge is predicted.
_PATIENCE_S = 45.0
# Trials run as many steps as a probe's confirmation if those are expected to take no longer than this.
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
    """Return the cost with the largest batch that a short search finds, or unchanged if no trial is worth its time.

    With `compiles`, every size takes a compilation, so trials run one size each."""
    space, history = _space(measured.candidate), [_as_climb(measured)]
    spent_s, last_s = 0.0, measured.outcome.duration_s
    while len(history) <= _MAX_TRIALS and spent_s + last_s <= _PATIENCE_S:
        fitting = _fitting_batches(history[1:])
        trial = next_trial(space, budget, history)
        if trial is None or isinstance(trial, Climb) or trial.candidate.batch_size in fitting:
            break  # only the confirmation that ends a probe is left
        trial = Search(candidate=trial.candidate, further=trial.further)
        if len(history) == _MAX_TRIALS and not fitting:
            # The climb was misleading: come from below instead, judging by the candidate's own peak.
            trial = with_larger_sizes(measured.candidate.lane.at(measured.safe_batch_size(budget)))
        elif not fitting and not compiles:
            trial = _start_lower(trial, measured.candidate.batch_size)
        if compiles:
            trial = dataclasses.replace(trial, further=())
        if _is_short(trial, spec, measured):
            # Near the edge, later steps may need more memory than the first ones.
            trial = Confirm(candidate=trial.candidate, further=trial.further, further_within_s=trial.further_within_s)
        outcome = bench.run(f"{what}, batch {trial.candidate.batch_size:,}", spec, budget, trial)
        history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome))
        spent_s, last_s = spent_s + outcome.duration_s, outcome.duration_s
        if outcome.kind not in (Kind.FITS, Kind.DEVICE_OOM):
            break
    return _with_edge(cost, space, history, measured.candidate, budget) if len(history) > 1 else cost


def _start_lower(trial: Search, least: int) -> Search:
    """Begin a little below: one process then usually shows both a size that fits and one that does not."""
    batch = trial.candidate.batch_size
    below = max(least, int(batch * (1 - _BELOW)))
    if below >= batch:
        return trial
    return dataclasses.replace(trial, candidate=trial.candidate.lane.at(below), further=(batch, *trial.further))


def _is_short(trial: Search, spec: ProbeSpec, measured: Measurement) -> bool:
    """Return True if running as many steps as a confirmation takes little time."""
    growth = trial.candidate.batch_size / measured.candidate.batch_size
    expected_s = spec.trial.confirm_steps * (measured.outcome.step_ms or 0.0) * growth / 1000
    return expected_s <= _LONG_RUN_S


def _space(candidate: Candidate) -> SearchSpace:
    sizes = range(1, candidate.batch_size * MAX_GROWTH + 1)
    return SearchSpace(batch_sizes=sizes, resolution=_RESOLUTION).only(candidate.lane)


def _as_climb(measured: Measurement) -> TrialRecord:
    """Present the measurement as the climb that a search begins with."""
    points, failed = measured.points, measured.outcome.further_failed
    sizes = tuple(point.batch_size for point in points)
    return TrialRecord(
        number=1,
        trial=Climb(lane=measured.candidate.lane, sizes=sizes),
        outcome=Climbed(peak_bytes=points[-1].peak_bytes, points=points) if failed is None else _failed(points, failed),
    )


def _failed(points: tuple[Point, ...], failed: FailedSize) -> Failed:
    return Failed(
        kind=failed.kind,
        stage=Stage.DONE if failed.over_headroom else Stage.TRAIN,
        error=TrialError(code=failed.kind.value, message=""),
        batch_size=failed.batch_size,
        peak_bytes=failed.peak_bytes,
        points=points,
    )


def _fitting_batches(records: Sequence[TrialRecord]) -> set[int]:
    """Return the batches that fitted in a fresh process, or right after a slightly smaller one."""
    return {
        run.candidate.batch_size
        for record in records
        for run in runs_of([record])
        if run.fits and run.candidate.batch_size <= _NEAR * record.trial.candidate.batch_size
    }


def _with_edge(
    cost: Cost, space: SearchSpace, history: Sequence[TrialRecord], candidate: Candidate, budget: Budget
) -> Cost:
    """Take the largest batch that ran in a fresh process; the candidate itself did, whatever came later."""
    proven = max((point.batch_size for point in frontier(space, history[1:], budget)), default=0)
    (edge,) = frontier(space, history, budget)
    certainty = Certainty.RAN if proven == edge.batch_size and edge.edge_known else Certainty.AT_LEAST
    if history[-1].outcome.kind is Kind.CRASH:
        certainty = Certainty.NO_LARGER  # a model may be built for one batch size
    return dataclasses.replace(cost, largest_batch_size=max(proven, candidate.batch_size), certainty=certainty)
