"""The answer of a probe in words: the verdict, the settings and the findings."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

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
from oomtune.report.answer import answer_rows, finding_rows, paste_lines, verdict_words
from oomtune.report.json_document import probe_document
from oomtune.report.terminal import print_answer
from oomtune.report.trial_rows import trial_row
from tests.support.finished import FailingDevice, finished
from tests.support.outcomes import failed
from tests.support.sessions import EXACT_SPEC, linear_device, probe
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


def test_a_finding_that_makes_memory_grow_tells_how_long_memory_lasts() -> None:
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


def test_paste_lines_do_not_compile_a_model_that_is_already_compiled() -> None:
    device = linear_device()
    result = dataclasses.replace(probe(device, device.budget), tuned_path="m.tuned.yaml")
    assert any(line.startswith("model.compile(") for line in paste_lines(result))
    compiled = dataclasses.replace(EXACT_SPEC, training=dataclasses.replace(EXACT_SPEC.training, loss=None))
    lines = paste_lines(dataclasses.replace(result, spec=compiled))
    assert not any(line.startswith("model.compile(") for line in lines)
    assert any("keeps its own optimizer" in line for line in lines)


def test_the_table_and_the_json_document_have_the_same_numbers() -> None:
    device = linear_device()
    result = probe(device, device.budget)
    rows, document = dict(answer_rows(result)), probe_document(result)
    assert rows["batch size"] == str(document["best"]["batch_size"]) == "180"
    assert rows["trials"].startswith(str(len(document["trials"])))
    assert "20 steps" in rows["confirmed"]
    assert rows["next larger"] == "batch 181: does not fit"
    assert document["confirmed"] is True


def test_a_batch_at_the_top_of_the_range_is_not_called_the_edge() -> None:
    device = linear_device(limit_bytes=10**9)
    rows = dict(answer_rows(probe(device, device.budget)))
    assert rows["batch size"] == "1024"
    assert "largest batch that search.batch_size allows" in rows["next larger"]


def test_without_a_tuned_file_there_is_nothing_to_paste() -> None:
    device = linear_device()
    assert paste_lines(probe(device, device.budget)) == []


def test_paste_lines_are_not_wrapped_on_a_narrow_terminal() -> None:
    device, text = linear_device(), io.StringIO()
    path = f"{'folder/' * 20}model.tuned.yaml"
    result = dataclasses.replace(probe(device, device.budget), tuned_path=path)
    print_answer(Console(file=text, width=60), result)
    printed = text.getvalue().splitlines()
    assert f"tuned config: {path}" in printed
    assert [f"  {line}" for line in paste_lines(result)] == printed[-len(paste_lines(result)) :]
