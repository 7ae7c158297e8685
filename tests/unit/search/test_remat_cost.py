"""What rematerialisation costs in time: measured for every answer with it, and nowhere claimed without."""

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
from oomtune.storage.tuned import tuned_values
from oomtune.trials.fake import FakeDevice
from tests.support.finished import finished
from tests.support.outcomes import failed
from tests.support.specs import small_probe_spec
from tests.unit.search.test_remedies_in_the_search import Notes, probe

WITHOUT, WITH = Candidate(batch_size=32), Candidate(batch_size=96, remat=RematMode.FULL)


def climbed(candidate: Candidate, **step_ms: float) -> TrialRecord:
    """A climb in the candidate's lane, with the step of each size."""
    sizes = [(int(name.removeprefix("at_")), took) for name, took in step_ms.items()]
    points = tuple(Point(batch_size=size, peak_bytes=1_000, step_ms=took) for size, took in sizes)
    outcome = Climbed(peak_bytes=1_000, step_ms=sizes[-1][1], points=points)
    return TrialRecord(
        number=1, trial=Climb(lane=candidate.lane, sizes=tuple(size for size, _ in sizes)), outcome=outcome
    )


def answered(candidate: Candidate, *records: TrialRecord) -> ProbeResult:
    best = Fit(candidate=candidate, peak_bytes=1_000, step_ms=10.0)
    return dataclasses.replace(finished(max_trials=1), best=best, records=records, buckets=None, frontier=())


def test_it_is_shown_by_the_nearest_batches_with_and_without() -> None:
    # 1 ms a sample at batch 32 without, 1.5 ms at batch 40 with; what larger batches took is another matter.
    result = answered(WITH, climbed(WITHOUT, at_8=16.0, at_32=32.0), climbed(WITH, at_40=60.0, at_96=96.0))
    assert result.remat_slowdown == pytest.approx(1.5)
    assert dict(answer_rows(result))["rematerialisation"] == "full, a sample takes 1.50 times as long"
    assert probe_document(result)["throughput"]["remat_slowdown"] == pytest.approx(1.5)
    values = tuned_values({}, result, output=Path("m.tuned.yaml"), spec_sha256="", origin={})
    assert values["tuned"]["evidence"]["remat_slowdown"] == 1.5


@pytest.mark.parametrize(
    "records",
    [(climbed(WITH, at_96=96.0),), (climbed(WITHOUT, at_2=2.0), climbed(WITH, at_96=96.0))],
    ids=["nothing ran without it", "nothing ran that is near"],
)
def test_what_was_not_measured_is_not_claimed(records: tuple[TrialRecord, ...]) -> None:
    result = answered(WITH, *records)
    assert dict(answer_rows(result))["rematerialisation"] == "full, its time cost was not measured"
    assert probe_document(result)["throughput"]["remat_slowdown"] is None
    values = tuned_values({}, result, output=Path("m.tuned.yaml"), spec_sha256="", origin={})
    assert "remat_slowdown" not in values["tuned"]["evidence"]


def test_an_answer_without_it_has_no_cost() -> None:
    result = answered(WITHOUT, climbed(WITHOUT, at_32=32.0), climbed(WITH, at_32=48.0))
    assert result.remat_slowdown is None
    assert "rematerialisation" not in dict(answer_rows(result))


ONLY_WITH = small_probe_spec(search__remat=["full"], search__resolution=0.0)


def device(without: float) -> FakeDevice:
    """A step takes half as long again with it, and so many times the memory without."""
    return FakeDevice(
        limit_bytes=1_000,
        law=lambda candidate: int(
            100 + 5 * candidate.batch_size * (1 if candidate.remat is RematMode.FULL else without)
        ),
        step_ms=lambda candidate: candidate.batch_size * (1.5 if candidate.remat is RematMode.FULL else 1.0),
    )


@pytest.mark.parametrize("without", [1.5, 3.0, 6.0])
def test_where_nothing_is_searched_without_it_short_trials_show_the_cost(without: float) -> None:
    there = device(without)
    result = probe(there, there.budget, ONLY_WITH)
    assert result.verdict is Verdict.TUNED
    assert result.best is not None
    assert result.best.candidate == Candidate(batch_size=180, remat=RematMode.FULL)
    assert result.remat_slowdown == pytest.approx(1.5)
    aside = [trial for trial in there.ran if trial.aim is Aim.TIMING]
    compared = [trial.candidate for trial in aside[-2:]]
    assert [candidate.remat for candidate in compared] == ["none", "full"]
    assert compared[0].batch_size == compared[1].batch_size, "like is compared with like"
    assert len(aside) <= 4
    assert aside == there.ran[-len(aside) :], "the answer comes first"
    assert probe(there, there.budget, ONLY_WITH, earlier=result.records).new_trials == 0


def test_a_limit_that_is_reached_when_only_the_cost_is_open_does_not_unmake_the_answer() -> None:
    there = device(1.5)
    probe(there, there.budget, ONLY_WITH)
    for_the_answer = sum(trial.aim is Aim.ANSWER for trial in there.ran)
    result = probe(there, there.budget, ONLY_WITH, max_trials=for_the_answer)
    assert (result.verdict, result.problem, result.remat_slowdown) == (Verdict.TUNED, None, None)
    early = probe(there, there.budget, ONLY_WITH, max_trials=for_the_answer - 1)
    assert early.verdict is Verdict.STOPPED


def test_a_cost_that_can_not_be_measured_leaves_the_answer_as_it_is() -> None:
    there = device(1000.0)
    result = probe(there, there.budget, ONLY_WITH)
    assert result.best is not None
    assert (result.verdict, result.best.candidate.batch_size, result.remat_slowdown) == (Verdict.TUNED, 180, None)


def test_a_model_that_fails_without_it_keeps_its_answer_and_that_is_said() -> None:
    class FailsWithout(FakeDevice):
        def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
            outcome = super().run(trial, within_s=within_s)
            if trial.candidate.remat is RematMode.FULL:
                return outcome
            return failed(Kind.CRASH, error=TrialError(code="raised", message="no such op"))

    there, notes = FailsWithout(limit_bytes=1_000, law=device(1.0).law), Notes()
    result = probe(there, there.budget, ONLY_WITH, observer=notes)
    assert (result.verdict, result.remat_slowdown) == (Verdict.TUNED, None)
    assert notes.notices == ["the time that rematerialisation costs is not known: no such op"]
    assert probe(there, there.budget, ONLY_WITH, earlier=result.records).new_trials == 0


def test_where_both_are_searched_nothing_more_is_run_for_it() -> None:
    there = device(1.5)
    result = probe(there, there.budget, small_probe_spec(search__remat=["none", "full"], search__resolution=0.0))
    assert result.remat_slowdown == pytest.approx(1.5)
    assert not any(trial.aim is Aim.TIMING for trial in there.ran)
