"""What rematerialisation costs in time: measured for every answer that uses it, and never guessed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from oomtune.domain import (
    Aim,
    Candidate,
    Climb,
    Climbed,
    Fit,
    Kind,
    Outcome,
    Point,
    ProbeResult,
    RematMode,
    Trial,
    TrialError,
    TrialRecord,
    Verdict,
)
from oomtune.report.answer import answer_rows
from oomtune.report.json_document import probe_document
from oomtune.session import Limits
from oomtune.storage.tuned import tuned_values
from oomtune.trials.fake import FakeDevice
from tests.support.finished import finished
from tests.support.outcomes import failed
from tests.support.sessions import Notices, probe
from tests.support.specs import small_probe_spec

WITHOUT, WITH = Candidate(batch_size=32), Candidate(batch_size=96, remat=RematMode.FULL)


def climbed(candidate: Candidate, **step_ms: float) -> TrialRecord:
    """Return a climb in the candidate's lane, with the step time of each size."""
    sizes = [(int(name.removeprefix("at_")), took) for name, took in step_ms.items()]
    points = tuple(Point(batch_size=size, peak_bytes=1_000, step_ms=took) for size, took in sizes)
    outcome = Climbed(peak_bytes=1_000, step_ms=sizes[-1][1], points=points)
    return TrialRecord(
        number=1, trial=Climb(lane=candidate.lane, sizes=tuple(size for size, _ in sizes)), outcome=outcome
    )


def answered(candidate: Candidate, *records: TrialRecord) -> ProbeResult:
    best = Fit(candidate=candidate, peak_bytes=1_000, step_ms=10.0)
    return dataclasses.replace(finished(max_trials=1), best=best, records=records, buckets=None, frontier=())


def test_the_cost_is_measured_at_the_nearest_batches_with_and_without() -> None:
    # 1 ms a sample at batch 32 without, 1.5 ms at batch 40 with; larger batches do not count.
    result = answered(WITH, climbed(WITHOUT, at_8=16.0, at_32=32.0), climbed(WITH, at_40=60.0, at_96=96.0))
    assert result.remat_slowdown == pytest.approx(1.5)
    assert dict(answer_rows(result))["rematerialisation"] == "full, a sample takes 1.50 times as long"
    assert probe_document(result)["throughput"]["remat_slowdown"] == pytest.approx(1.5)
    values = tuned_values({}, result, output=Path("m.tuned.yaml"), spec_sha256="", origin={})
    assert values["tuned"]["evidence"]["remat_slowdown"] == 1.5


@pytest.mark.parametrize(
    "records",
    [(climbed(WITH, at_96=96.0),), (climbed(WITHOUT, at_2=2.0), climbed(WITH, at_96=96.0))],
    ids=["nothing ran without it", "nothing ran at a similar batch"],
)
def test_a_cost_that_was_not_measured_is_not_reported(records: tuple[TrialRecord, ...]) -> None:
    result = answered(WITH, *records)
    assert dict(answer_rows(result))["rematerialisation"] == "full, its time cost was not measured"
    assert probe_document(result)["throughput"]["remat_slowdown"] is None
    values = tuned_values({}, result, output=Path("m.tuned.yaml"), spec_sha256="", origin={})
    assert "remat_slowdown" not in values["tuned"]["evidence"]


def test_an_answer_without_rematerialisation_has_no_cost() -> None:
    result = answered(WITHOUT, climbed(WITHOUT, at_32=32.0), climbed(WITH, at_32=48.0))
    assert result.remat_slowdown is None
    assert "rematerialisation" not in dict(answer_rows(result))


ONLY_WITH = small_probe_spec(search__remat=["full"], search__resolution=0.0)


def device(without: float) -> FakeDevice:
    """With rematerialisation a step takes 1.5 times as long; without it a sample takes `without` times the memory."""
    return FakeDevice(
        limit_bytes=1_000,
        law=lambda candidate: int(
            100 + 5 * candidate.batch_size * (1 if candidate.remat is RematMode.FULL else without)
        ),
        step_ms=lambda candidate: candidate.batch_size * (1.5 if candidate.remat is RematMode.FULL else 1.0),
    )


@pytest.mark.parametrize("without", [1.5, 3.0, 6.0])
def test_short_trials_measure_the_cost_where_nothing_else_ran_without_rematerialisation(without: float) -> None:
    runner = device(without)
    result = probe(runner, runner.budget, ONLY_WITH)
    assert result.verdict is Verdict.TUNED
    assert result.best is not None
    assert result.best.candidate == Candidate(batch_size=180, remat=RematMode.FULL)
    assert result.remat_slowdown == pytest.approx(1.5)
    timing = [trial for trial in runner.ran if trial.aim is Aim.TIMING]
    compared = [trial.candidate for trial in timing[-2:]]
    assert [candidate.remat for candidate in compared] == ["none", "full"]
    assert compared[0].batch_size == compared[1].batch_size, "like is compared with like"
    assert len(timing) <= 4
    assert timing == runner.ran[-len(timing) :], "the answer comes first"
    assert probe(runner, runner.budget, ONLY_WITH, earlier=result.records).new_trials == 0


def test_a_trial_limit_that_only_the_cost_exceeds_keeps_the_answer() -> None:
    runner = device(1.5)
    probe(runner, runner.budget, ONLY_WITH)
    for_the_answer = sum(trial.aim is Aim.ANSWER for trial in runner.ran)
    result = probe(runner, runner.budget, ONLY_WITH, limits=Limits(max_trials=for_the_answer))
    assert (result.verdict, result.problem, result.remat_slowdown) == (Verdict.TUNED, None, None)
    early = probe(runner, runner.budget, ONLY_WITH, limits=Limits(max_trials=for_the_answer - 1))
    assert early.verdict is Verdict.STOPPED


def test_the_answer_stands_where_the_cost_can_not_be_measured() -> None:
    runner = device(1000.0)
    result = probe(runner, runner.budget, ONLY_WITH)
    assert result.best is not None
    assert (result.verdict, result.best.candidate.batch_size, result.remat_slowdown) == (Verdict.TUNED, 180, None)


def test_a_model_that_fails_without_rematerialisation_keeps_its_answer_with_a_notice() -> None:
    class FailsWithout(FakeDevice):
        def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
            outcome = super().run(trial, within_s=within_s)
            if trial.candidate.remat is RematMode.FULL:
                return outcome
            return failed(Kind.CRASH, error=TrialError(code="raised", message="no such op"))

    runner, notices = FailsWithout(limit_bytes=1_000, law=device(1.0).law), Notices()
    result = probe(runner, runner.budget, ONLY_WITH, observer=notices)
    assert (result.verdict, result.remat_slowdown) == (Verdict.TUNED, None)
    assert notices.notices == ["the time cost of rematerialisation is unknown: no such op"]
    assert probe(runner, runner.budget, ONLY_WITH, earlier=result.records).new_trials == 0


def test_no_trial_is_added_where_the_search_runs_with_and_without_rematerialisation() -> None:
    runner = device(1.5)
    result = probe(runner, runner.budget, small_probe_spec(search__remat=["none", "full"], search__resolution=0.0))
    assert result.remat_slowdown == pytest.approx(1.5)
    assert not any(trial.aim is Aim.TIMING for trial in runner.ran)
