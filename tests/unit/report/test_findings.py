"""Findings: a leak is accounted for once, they are told with what they cost, and old ledgers know of none."""

from __future__ import annotations

import dataclasses

import pytest

from oomtune.domain import (
    Candidate,
    Climb,
    Confirm,
    Finding,
    Fit,
    Kind,
    Outcome,
    ProbeResult,
    Search,
    Stage,
    TrialError,
    TrialRecord,
    Verdict,
)
from oomtune.report.document import probe_document
from oomtune.report.endings import outcome_words
from oomtune.report.findings import finding_rows
from oomtune.report.model import answer_rows
from oomtune.trials.leaks import explained
from tests.support.specs import BUDGET, CPU, small_probe_spec

MIB = 1024**2
KEPT = Finding(kind="kept_tensors", message="a list grows", where="a.py:7", hint="clear it", bytes_per_step=1000)
TRACED = Finding(kind="retrace", message="f() was traced 9 times in 9 steps", where="a.py:8", hint="pass tensors")
BEST = Candidate(batch_size=8)
LARGER = Candidate(batch_size=9)


def confirmed(*findings: Finding) -> TrialRecord:
    outcome = Outcome(kind=Kind.FITS, stage=Stage.DONE, peak_bytes=4 * MIB, findings=findings)
    return TrialRecord(number=1, trial=Confirm(candidate=BEST), outcome=outcome)


def fragmented() -> TrialRecord:
    error = TrialError(code="fragmentation", message="fragmentation: 30% is free", hint="take a smaller batch")
    outcome = Outcome(kind=Kind.DEVICE_OOM, stage=Stage.TRAIN, error=error)
    return TrialRecord(number=2, trial=Search(candidate=LARGER), outcome=outcome)


def result(*records: TrialRecord) -> ProbeResult:
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


@pytest.mark.parametrize(
    ("found", "leak", "told"),
    [
        ((), 0, []),
        ((KEPT,), 0, [("kept_tensors", 1000)]),
        ((KEPT,), 1100, [("kept_tensors", 1000)]),
        ((KEPT,), 9000, [("kept_tensors", 1000), ("leak", 9000)]),
        ((TRACED,), 9000, [("retrace", 9000)]),
        ((), 9000, [("leak", 9000)]),
    ],
)
def test_a_leak_that_nothing_explains_is_a_finding_of_its_own(
    found: tuple[Finding, ...], leak: int, told: list[tuple[str, int]]
) -> None:
    assert [(finding.kind, finding.bytes_per_step) for finding in explained(found, leak)] == told


def test_a_finding_says_how_long_memory_lasts() -> None:
    (row,) = finding_rows(result(confirmed(KEPT)))
    assert row.message == "a list grows; what is left of the limit lasts 20,971 steps"
    assert (row.where, row.hint) == ("a.py:7", "clear it")
    assert finding_rows(result(confirmed(TRACED)))[0].message == TRACED.message


def test_fragmentation_of_the_next_larger_batch_is_told_with_what_helps() -> None:
    found = result(confirmed(), fragmented())
    assert dict(answer_rows(found))["next larger"] == "batch 9: does not fit (fragmentation)"
    (row,) = finding_rows(found)
    assert (row.message, row.hint) == ("batch 9: fragmentation: 30% is free", "take a smaller batch")
    assert outcome_words(found.records[1]) == "out of memory (fragmentation)"


def test_fragmentation_that_ended_a_climb_is_told_too() -> None:
    climb = Climb(lane=BEST.lane, sizes=(1, 4, 9))
    record = fragmented()
    ended = dataclasses.replace(record, trial=climb, outcome=dataclasses.replace(record.outcome, failed_batch_size=9))
    assert [row.hint for row in finding_rows(result(confirmed(), ended))] == ["take a smaller batch"]


def test_the_json_document_has_the_findings_of_the_answer() -> None:
    document = probe_document(result(confirmed(KEPT)))
    assert document["findings"] == document["trials"][0]["findings"] == [dataclasses.asdict(KEPT)]
    assert "findings" not in probe_document(result(confirmed()))["trials"][0]
