"""Runs: every size that a trial executed, and what ran before it in the same process."""

from __future__ import annotations

import dataclasses

from oomtune.domain import (
    BucketTurns,
    Candidate,
    Climb,
    Climbed,
    Confirm,
    FailedSize,
    Fitted,
    Kind,
    Outcome,
    Point,
    Provenance,
    Purpose,
    Run,
    Search,
    Stage,
    Trial,
    TrialRecord,
    runs_of,
)
from tests.support.outcomes import failed

LANE = Candidate(batch_size=1).lane
CLIMB = Climb(lane=LANE, sizes=(1, 4, 16))
POINTS = (Point(batch_size=1, peak_bytes=100, step_ms=1.0), Point(batch_size=4, peak_bytes=400, step_ms=2.0))


def runs(trial: Trial, outcome: Outcome) -> list[Run]:
    return runs_of([TrialRecord(number=3, trial=trial, outcome=outcome)])


def summary(runs: list[Run]) -> list[tuple[int, Kind, int | None, Provenance]]:
    return [(run.candidate.batch_size, run.kind, run.peak_bytes, run.provenance) for run in runs]


def test_a_candidate_runs_in_a_fresh_process_and_larger_sizes_after_a_neighbour() -> None:
    beyond = FailedSize(batch_size=10, kind=Kind.DEVICE_OOM, peak_bytes=950)
    further = (Point(batch_size=9, peak_bytes=880, step_ms=1.0),)
    outcome = Fitted(peak_bytes=800, step_ms=2.0, further=further, further_failed=beyond, duration_s=3.0)
    own, larger, too_large = executed = runs(Confirm(candidate=LANE.at(8), further=(9, 10)), outcome)
    assert summary(executed) == [
        (8, Kind.FITS, 800, Provenance.FRESH_PROCESS),
        (9, Kind.FITS, 880, Provenance.AFTER_NEIGHBOUR),
        (10, Kind.DEVICE_OOM, 950, Provenance.AFTER_NEIGHBOUR),
    ]
    assert all(run.is_confirm and run.trial_number == 3 for run in executed)
    assert (own.samples_per_second, too_large.over_headroom) == (4_000.0, True)
    assert [run.duration_s for run in (own, larger, too_large)] == [None, None, 3.0]


def test_a_larger_size_that_ran_out_of_memory_has_no_peak() -> None:
    beyond = FailedSize(batch_size=10, kind=Kind.DEVICE_OOM)
    *_, last = runs(Search(candidate=LANE.at(8)), Fitted(peak_bytes=800, further_failed=beyond))
    assert (last.peak_bytes, last.stage, last.over_headroom) == (None, Stage.TRAIN, False)


def test_a_climb_is_one_run_for_each_size_and_the_failed_size_comes_last() -> None:
    out = failed(points=POINTS, batch_size=16, peak_bytes=400, step_ms=1.5)
    assert summary(runs(CLIMB, out)) == [
        (1, Kind.FITS, 100, Provenance.IN_CLIMB),
        (4, Kind.FITS, 400, Provenance.IN_CLIMB),
        (16, Kind.DEVICE_OOM, None, Provenance.IN_CLIMB),
    ]
    over = dataclasses.replace(out, stage=Stage.DONE, peak_bytes=1_200)
    assert runs(CLIMB, over)[-1].peak_bytes == 1_200
    assert summary(runs(CLIMB, Climbed(peak_bytes=400, points=POINTS))) == summary(runs(CLIMB, out))[:2]


def test_a_climb_that_fails_at_its_first_size_is_a_run_in_a_fresh_process() -> None:
    assert summary(runs(CLIMB, failed(batch_size=1))) == [(1, Kind.DEVICE_OOM, None, Provenance.FRESH_PROCESS)]


def test_buckets_that_take_turns_are_one_run_without_a_throughput() -> None:
    buckets = ((32, 16), (64, 8))
    trial = BucketTurns(purpose=Purpose.CONFIRM, lane=LANE, buckets=buckets)
    (run,) = runs(trial, Fitted(peak_bytes=700, step_ms=2.0))
    assert (run.candidate.batch_size, run.buckets, run.samples_per_second) == (8, buckets, None)
