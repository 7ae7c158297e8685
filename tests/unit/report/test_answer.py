"""The answer of a probe in words: the verdict, and what the trials found besides the answer."""

from __future__ import annotations

import dataclasses

from oomtune.domain import (
    Candidate,
    Climb,
    Confirm,
    Finding,
    Fit,
    Fitted,
    Kind,
    ProbeResult,
    Search,
    TrialError,
    TrialRecord,
    Verdict,
)
from oomtune.report.answer import answer_rows, finding_rows, verdict_words
from oomtune.report.json_document import probe_document
from oomtune.report.trial_rows import trial_row
from tests.support.finished import FailingDevice, finished
from tests.support.outcomes import failed
from tests.support.specs import BUDGET, CPU, small_probe_spec

MIB = 1024**2
KEPT = Finding(kind="kept_tensors", message="a list grows", where="a.py:7", hint="clear it", bytes_per_step=1000)
TRACED = Finding(kind="retrace", message="f() was traced 9 times in 9 steps", where="a.py:8", hint="pass tensors")
BEST = Candidate(batch_size=8)
LARGER = Candidate(batch_size=9)


def confirmed(*findings: Finding) -> TrialRecord:
    outcome = Fitted(peak_bytes=4 * MIB, findings=findings)
    return TrialRecord(number=1, trial=Confirm(candidate=BEST), outcome=outcome)


def fragmented() -> TrialRecord:
    error = TrialError(code="fragmentation", message="fragmentation: 30% is free", hint="take a smaller batch")
    outcome = failed(error=error, batch_size=LARGER.batch_size)
    return TrialRecord(number=2, trial=Search(candidate=LARGER), outcome=outcome)


def result_of(*records: TrialRecord) -> ProbeResult:
    return ProbeResult(
        verdict=Verdict.TUNED,
        spec=small_probe_spec(),
        device=CPU,
        budget=BUDGET,
        records=records,
        best=Fit(candidate=BEST, peak_bytes=4 * MIB, step_ms=1.0, confirmed_by=records[0]),
        frontier=(),
        next_larger=(LARGER, Kind.DEVICE_OOM),
    )


def test_the_sentence_of_a_failed_probe_ends_with_one_full_stop() -> None:
    error = dataclasses.replace(FailingDevice.error, message="the output size is zero.")
    failed = dataclasses.replace(finished(device_class=FailingDevice), problem=error)
    sentence = "A trial failed for a reason other than memory: the output size is zero."
    assert verdict_words(failed).sentence == sentence


def test_a_finding_that_makes_memory_grow_says_how_long_memory_lasts() -> None:
    (row,) = finding_rows(result_of(confirmed(KEPT)))
    assert row.message == "a list grows; the rest of the limit lasts 20,971 steps"
    assert (row.where, row.hint) == ("a.py:7", "clear it")
    assert finding_rows(result_of(confirmed(TRACED)))[0].message == TRACED.message


def test_fragmentation_of_the_next_larger_batch_comes_with_a_remedy() -> None:
    result = result_of(confirmed(), fragmented())
    assert dict(answer_rows(result))["next larger"] == "batch 9: does not fit (fragmentation)"
    (row,) = finding_rows(result)
    assert (row.message, row.hint) == ("batch 9: fragmentation: 30% is free", "take a smaller batch")
    assert trial_row(result.records[1], BUDGET).ended == "out of memory (fragmentation)"


def test_fragmentation_that_ended_a_climb_is_reported_too() -> None:
    climb = Climb(lane=BEST.lane, sizes=(1, 4, 9))
    record = fragmented()
    ended = dataclasses.replace(record, trial=climb)
    assert [row.hint for row in finding_rows(result_of(confirmed(), ended))] == ["take a smaller batch"]


def test_the_json_document_has_the_findings_of_the_answer() -> None:
    document = probe_document(result_of(confirmed(KEPT)))
    assert document["findings"] == document["trials"][0]["findings"] == [dataclasses.asdict(KEPT)]
    assert "findings" not in probe_document(result_of(confirmed()))["trials"][0]
