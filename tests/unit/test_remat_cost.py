"""What rematerialisation costs in time: said where it was measured, and nowhere else."""

from __future__ import annotations

import dataclasses

import pytest

from oomtune.domain import Candidate, Fit, Kind, Outcome, Point, ProbeResult, Purpose, Stage, Trial, TrialRecord
from oomtune.report.document import probe_document
from oomtune.report.model import answer_rows
from oomtune.tuned import tuned_values
from tests.finished import finished

WITHOUT, WITH = Candidate(batch_size=32), Candidate(batch_size=96, remat="full")


def climbed(candidate: Candidate, **step_ms: float) -> TrialRecord:
    """A climb in the candidate's lane, with the step of each size."""
    sizes = [(int(name.removeprefix("at_")), took) for name, took in step_ms.items()]
    points = tuple(Point(batch_size=size, peak_bytes=1_000, step_ms=took) for size, took in sizes)
    outcome = Outcome(kind=Kind.FITS, stage=Stage.DONE, peak_bytes=1_000, step_ms=sizes[-1][1], points=points)
    return TrialRecord(number=1, trial=Trial(purpose=Purpose.CALIBRATE, candidate=candidate), outcome=outcome)


def answered(candidate: Candidate, *records: TrialRecord) -> ProbeResult:
    best = Fit(candidate=candidate, peak_bytes=1_000, step_ms=10.0)
    return dataclasses.replace(finished(max_trials=1), best=best, records=records, buckets=None, frontier=())


def test_it_is_shown_by_the_nearest_batches_with_and_without() -> None:
    # 1 ms a sample at batch 32 without, 1.5 ms at batch 40 with; what larger batches took is another matter.
    result = answered(WITH, climbed(WITHOUT, at_8=16.0, at_32=32.0), climbed(WITH, at_40=60.0, at_96=96.0))
    assert result.remat_slowdown == pytest.approx(1.5)
    assert dict(answer_rows(result))["rematerialisation"] == "full, 1.50 times the time for a sample"
    assert probe_document(result)["throughput"]["remat_slowdown"] == pytest.approx(1.5)
    values = tuned_values({}, result, spec_sha256="", probed_at="", folder=None)
    assert values["tuned"]["evidence"]["remat_slowdown"] == 1.5


@pytest.mark.parametrize(
    "records",
    [(climbed(WITH, at_96=96.0),), (climbed(WITHOUT, at_2=2.0), climbed(WITH, at_96=96.0))],
    ids=["nothing ran without it", "nothing ran that is near"],
)
def test_what_was_not_measured_is_not_claimed(records: tuple[TrialRecord, ...]) -> None:
    result = answered(WITH, *records)
    assert dict(answer_rows(result))["rematerialisation"] == "full, at a cost in time that was not measured"
    assert probe_document(result)["throughput"]["remat_slowdown"] is None
    values = tuned_values({}, result, spec_sha256="", probed_at="", folder=None)
    assert "remat_slowdown" not in values["tuned"]["evidence"]


def test_an_answer_without_it_has_no_cost() -> None:
    result = answered(WITHOUT, climbed(WITHOUT, at_32=32.0), climbed(WITH, at_32=48.0))
    assert result.remat_slowdown is None
    assert "rematerialisation" not in dict(answer_rows(result))
