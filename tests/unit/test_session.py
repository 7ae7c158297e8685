"""The loop on a fake device: what it records, when it stops, and what it reports at each end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from oomtune.domain import Kind, Outcome, Stage, Trial, TrialError, TrialRecord, Verdict
from oomtune.domain.observer import SilentObserver
from oomtune.session import Limits
from oomtune.trials.fake import FakeDevice
from tests.support.outcomes import failed
from tests.support.sessions import EXACT_SPEC, Notices, linear_device, probe


class Watch(SilentObserver):
    def __init__(self) -> None:
        self.started: list[int] = []
        self.ended: list[int] = []

    def trial_started(self, trial: Trial, number: int) -> None:
        self.started.append(number)

    def trial_ended(self, record: TrialRecord, history: Sequence[TrialRecord]) -> None:
        assert history[-1] == record
        self.ended.append(record.number)


def test_the_winner_is_confirmed_and_every_trial_is_recorded_and_observed() -> None:
    ledger: list[TrialRecord] = []
    device, watch = linear_device(), Watch()
    result = probe(device, device.budget, ledger=ledger, observer=watch)
    assert result.verdict is Verdict.TUNED
    assert result.best is not None
    assert result.best.candidate.batch_size == 180
    assert result.best.confirmed_by in ledger
    assert list(result.records) == ledger
    assert watch.started == watch.ended == [record.number for record in ledger] == list(range(1, len(ledger) + 1))


@pytest.mark.parametrize("count", range(6))
def test_resume_reaches_the_same_answer_and_runs_no_trial_twice(count: int) -> None:
    whole = probe(linear_device(), linear_device().budget)
    device = linear_device()
    rest = probe(device, device.budget, earlier=whole.records[:count])
    assert rest.records == whole.records
    assert device.ran == [record.trial for record in whole.records[count:]]
    assert rest.new_trials == len(whole.records[count:])


def test_a_limit_stops_the_search_and_the_problem_names_the_limit() -> None:
    device = linear_device()
    stopped = probe(device, device.budget, limits=Limits(max_trials=2))
    assert (stopped.verdict, len(stopped.records)) == (Verdict.STOPPED, 2)
    assert stopped.problem is not None
    assert "--max-trials" in stopped.problem.message
    late = probe(linear_device(), device.budget, limits=Limits(deadline=5.0), clock=lambda: 5.0)
    assert (late.verdict, late.records, late.best) == (Verdict.STOPPED, (), None)
    assert late.problem is not None
    assert "--time-limit" in late.problem.message


def test_a_deadline_keeps_the_best_so_far() -> None:
    device = linear_device()
    # On this clock a trial takes a second.
    result = probe(device, device.budget, limits=Limits(deadline=1.5), clock=lambda: float(len(device.ran)))
    assert result.verdict is Verdict.STOPPED
    assert len(result.records) == 2
    assert result.best is not None
    assert result.problem is not None
    assert "--time-limit after 2 more trials" in result.problem.message


def test_a_limit_reached_with_the_answer_does_not_stop_the_search() -> None:
    trials = len(probe(linear_device(), linear_device().budget).records)
    assert probe(linear_device(), linear_device().budget, limits=Limits(max_trials=trials)).verdict is Verdict.TUNED


def test_the_verdict_is_nothing_fits_when_the_smallest_batch_does_not_fit() -> None:
    device = linear_device(limit_bytes=50)
    result = probe(device, device.budget)
    assert (result.verdict, result.best) == (Verdict.NOTHING_FITS, None)


class Crashing(FakeDevice):
    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        super().run(trial, within_s=within_s)
        error = TrialError(code="raised", message="ValueError: no", traceback="Traceback: theirs")
        return failed(Kind.CRASH, stage=Stage.BUILD, error=error)


def test_a_crash_stops_the_search_at_once_with_the_users_traceback() -> None:
    device = Crashing(limit_bytes=1_000, law=lambda candidate: 1)
    result = probe(device, device.budget)
    assert (result.verdict, len(device.ran)) == (Verdict.FAILED, 1)
    assert result.problem is not None
    assert result.problem.traceback == "Traceback: theirs"


class Interrupted(FakeDevice):
    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if len(self.ran) == 2:
            raise KeyboardInterrupt
        return super().run(trial, within_s=within_s)


def test_an_interrupted_session_keeps_its_records_and_can_go_on() -> None:
    ledger: list[TrialRecord] = []
    device = Interrupted(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size)
    result = probe(device, device.budget, ledger=ledger)
    assert (result.verdict, len(ledger)) == (Verdict.INTERRUPTED, 2)
    assert probe(linear_device(), device.budget, earlier=ledger).verdict is Verdict.TUNED


LARGEST = "1024 of length 24, 1024 of length 40, 1024 of length 96, 383 of length 256"
SMALLEST = "613 of length 24, 613 of length 40, 613 of length 96, 229 of length 256"
GENTLE = "1021 of length 24, 612 of length 40, 255 of length 96, 95 of length 256"
TOO_LARGE = f"no buckets: alternating batches exceed the budget, from {LARGEST} down to {SMALLEST}"


@pytest.mark.parametrize(
    ("turns_factor", "notices"),
    [
        (1.0, []),
        (50.0, [TOO_LARGE]),
        (2.0, [f"{TOO_LARGE}; {GENTLE} fit, but are too small to be worth it"]),
        (None, ["no buckets: the model takes one length only"]),
    ],
)
def test_one_notice_says_why_there_are_no_buckets(turns_factor: float | None, notices: list[str]) -> None:
    space = dataclasses.replace(
        EXACT_SPEC.space,
        sequence_lengths=(256,),
        length_counts=((10, 500), (20, 800), (40, 400), (90, 100), (256, 5)),
        most_buckets=4,
        resolution=0.02,
    )
    device = FakeDevice(
        limit_bytes=10_100_000,
        law=lambda candidate: 100_000 + 100 * candidate.batch_size * (candidate.sequence_length or 1),
        turns_factor=turns_factor,
    )
    observer = Notices()
    result = probe(device, device.budget, dataclasses.replace(EXACT_SPEC, space=space), observer=observer)
    assert result.verdict is Verdict.TUNED
    assert (result.buckets is None) == bool(notices)
    assert observer.notices == notices
