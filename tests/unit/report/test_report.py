"""What is shown of a finished probe: one set of numbers, in every form, and no text taken for anything else."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tensorboard.compat.proto import event_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

from oomtune.domain import Finding, ProbeResult, Verdict, runs_of
from oomtune.report.document import probe_document
from oomtune.report.endings import Ending
from oomtune.report.figures import figures
from oomtune.report.html import html_page
from oomtune.report.junit import junit_page
from oomtune.report.lanes import lane_entries
from oomtune.report.markdown import markdown_page
from oomtune.report.model import answer_rows, length_rows
from oomtune.report.table import csv_page
from oomtune.report.tensorboard import write_events
from oomtune.report.trial_entries import trial_entries
from oomtune.report.verdict import verdict_words
from oomtune.storage.tuned import tuned_values
from oomtune.units import format_bytes
from tests.support.explanations import explanation
from tests.support.finished import MIB, FailingDevice, InterruptedDevice, finished, probe_spec


@pytest.fixture(scope="module")
def result() -> ProbeResult:
    return finished(probe_spec(with_data=True))


@pytest.fixture(scope="module")
def large() -> ProbeResult:
    """Batches and milliseconds in the thousands."""
    spec = probe_spec(search__batch_size={"min": 1, "max": 100_000}, search__objective="batch_size")
    return finished(spec, limit_bytes=8 * 1024 * MIB)


def payload(page: str) -> dict[str, Any]:
    """The data that the page's script draws from."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    assert not set("<>&") & set(found[1])
    data: dict[str, Any] = json.loads(found[1])
    return data


def events(folder: Path) -> dict[str, Any]:
    """The values in one event file, by their tags."""
    (path,) = folder.glob("events.out.tfevents.*")
    reader = PyRecordReader_New(str(path))
    found: dict[str, Any] = {}
    while True:
        try:
            reader.GetNext()  # which also checks the sums
        except Exception as end:  # noqa: BLE001 - the reader has its own kind of end
            assert type(end).__name__ == "OutOfRangeError"  # noqa: PT017
            return found
        for value in event_pb2.Event.FromString(reader.record()).summary.value:
            found[value.tag] = value


@pytest.mark.parametrize("which", ["result", "large"])
def test_a_number_is_the_same_in_every_form(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result: ProbeResult = request.getfixturevalue(which)
    document = probe_document(result)
    lines = list(csv.DictReader(io.StringIO(csv_page(result))))
    page, text, suite = html_page(result), markdown_page(result), ElementTree.fromstring(junit_page(result))
    logs = write_events(result, tmp_path)
    drawn = payload(page)["figures"]
    cases = {case.attrib["name"].split()[1]: case for case in suite.iter("testcase") if "trial " in case.attrib["name"]}
    assert len(lines) == len(runs_of(result.records))
    for trial in document["trials"]:
        of_it = [line for line in lines if line["trial"] == str(trial["number"])]
        further = [*trial.get("further", ()), *filter(None, [trial.get("further_failed")])]
        own = of_it[-1 - len(further)]
        assert own["outcome"] == trial["outcome"]
        went_on = [[int(line["batch_size"]), int(line["peak_bytes"] or 0)] for line in of_it if line is not own]
        assert [[size["batch_size"], size["peak_bytes"] or 0] for size in further] == went_on[len(trial["points"]) :]
        assert float(of_it[-1]["duration_s"]) == pytest.approx(trial["duration_s"])
        climbed = [[int(line["batch_size"]), int(line["peak_bytes"])] for line in of_it[: len(trial["points"])]]
        assert climbed == [[point["batch_size"], point["peak_bytes"]] for point in trial["points"]]
        shown = of_it[len(trial["points"]) - 1] if trial["points"] else own
        assert trial["peak_bytes"] == (int(shown["peak_bytes"]) if shown["peak_bytes"] else None)
        assert trial["step_ms"] == (float(shown["step_ms"]) if shown["step_ms"] else None)
        if not shown["peak_bytes"]:
            continue
        peak = int(shown["peak_bytes"])
        bar = next(bar for bar in drawn["trials"]["bars"] if bar["number"] == trial["number"])
        assert bar["peak_bytes"] == max(int(line["peak_bytes"] or 0) for line in of_it[: len(of_it) - len(further)])
        assert f'data-value="{peak}">{format_bytes(peak)}<' in page
        assert f"peak {peak} bytes" in (cases[f"{trial['number']}"].findtext("system-out") or "")
        assert f"| {format_bytes(peak)} | {peak / result.budget.limit_bytes:.0%} |" in text
        session = events(logs / f"trial-{trial['number']:03d}-batch-{shown['batch_size']}")
        assert session["peak_bytes"].tensor.double_val[0] == peak
        assert session["step_ms"].tensor.double_val[0] == float(shown["step_ms"])
    best = document["best"]
    assert f'<p class="value">{best["batch_size"]}</p>' in page
    assert f"| batch size | {best['batch_size']} |" in text
    assert (best["batch_size"] > 1000) == (which == "large")
    rows = dict(answer_rows(result))
    assert rows["batch size"] == str(best["batch_size"])
    assert "<dt>batch size</dt>" not in page  # it is said above, and once
    assert f"<dt>step</dt><dd>{rows['step']}</dd>" in page
    assert f"| step | {rows['step']} |" in text
    assert f"| {rows['step'].partition(' ms')[0]} ms |" in text  # the winner's own row has it too
    for row in length_rows(result):
        assert f"| {row.length} | {row.share_cut:.1%} | {row.share_padding:.0%} |" in text
        assert f'>{row.share_cut:.1%}</td><td class="number">{row.share_padding:.0%}</td>' in page


def test_where_a_fit_meets_the_budget_is_one_number_in_one_report(result: ProbeResult) -> None:
    page, text, drawn = html_page(result), markdown_page(result), figures(result)
    entries = [entry for entry in lane_entries(result) if entry.fitted_edge is not None]
    assert entries
    for entry in entries:
        edge = f"{entry.fitted_edge:,.0f}"
        (series,) = [s for s in drawn["frontier"]["series"] if s["name"] == entry.lane.precision]
        (point,) = [point for point in series["edge"] if point["x"] == entry.lane.sequence_length]
        assert (point["y"], point["at"]) == (entry.fitted_edge, edge)
        (lane,) = [lane for lane in drawn["curve"]["lanes"] if lane["name"] == str(entry.lane)]
        (x, y), (more, higher) = lane["fit"]["from"], lane["fit"]["to"]
        met = x + (result.budget.budget_bytes - y) * (more - x) / (higher - y)
        assert met == pytest.approx(entry.fitted_edge)
        assert f">batch {edge}</td>" in page
        assert f"| {edge} |" in text
    assert f"meets the budget at batch {edge_of_the_winner(result)}." in drawn["curve"]["summary"]


def edge_of_the_winner(result: ProbeResult) -> str:
    assert result.best is not None
    return next(f"{e.fitted_edge:,.0f}" for e in lane_entries(result) if e.lane == result.best.candidate.lane)


@pytest.mark.parametrize("wanted", [None, 600])
def test_the_document_says_how_batches_add_up_as_the_tuned_config_does(wanted: int | None) -> None:
    result = finished(probe_spec(training__effective_batch_size=wanted))
    accumulation = probe_document(result)["accumulation"]
    tuned = tuned_values({}, result, spec_sha256="", probed_at="", folder=None)["tuned"]
    assert accumulation == {key: tuned[key] for key in ("gradient_accumulation_steps", "effective_batch_size")}
    assert (accumulation["gradient_accumulation_steps"] > 1) == (wanted is not None)


def test_the_frontier_tells_which_edges_are_not_known() -> None:
    early = finished(max_trials=3)
    shown = figures(early)["frontier"]
    known = {point["known"] for series in shown["series"] for point in series["line"]}
    assert False in known
    assert "A ring is around those" in shown["summary"]


def test_a_plot_holds_nothing_that_is_not_drawn(result: ProbeResult) -> None:
    """Every key of the data stands in the script that draws it."""
    script = resources.files("oomtune.report").joinpath("assets/report.js").read_text()
    drawn = payload(html_page(result, explanation=explanation(result)))

    def keys(value: Any) -> set[str]:
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {*(value if isinstance(value, dict) else ())}.union(*map(keys, entries))

    ours = keys(drawn) - {ending.key for ending in Ending}
    assert {key for key in ours if not re.search(rf"\b{key}\b", script)} == set()


def test_an_error_that_is_a_sentence_ends_with_one_stop() -> None:
    error = dataclasses.replace(FailingDevice.error, message="the output size is zero.")
    failed = dataclasses.replace(finished(device_class=FailingDevice), problem=error)
    assert verdict_words(failed).sentence == "A trial failed, and memory is not why: the output size is zero."


@pytest.mark.parametrize(
    ("ended", "verdict", "failures", "errors"),
    [
        ({}, Verdict.TUNED, 0, 0),
        ({"max_trials": 2}, Verdict.STOPPED, 0, 0),
        ({"limit_bytes": 30 * MIB}, Verdict.NOTHING_FITS, 1, 0),
        ({"device_class": FailingDevice}, Verdict.FAILED, 0, 2),
        ({"device_class": InterruptedDevice}, Verdict.INTERRUPTED, 1, 0),
        ({"max_trials": 0}, Verdict.STOPPED, 1, 0),
    ],
)
def test_every_way_a_probe_can_end_can_be_shown(
    ended: dict[str, Any], verdict: Verdict, failures: int, errors: int, tmp_path: Path
) -> None:
    result = finished(**ended)
    assert result.verdict is verdict
    words = verdict_words(result)
    assert words.sentence.endswith(".")
    assert words.word in html_page(result)
    assert words.good == (not failures and not errors) == ('id="answer" class="good"' in html_page(result))
    assert words.sign in markdown_page(result)
    suite = ElementTree.fromstring(junit_page(result))
    assert (suite.attrib["failures"], suite.attrib["errors"]) == (str(failures), str(errors))
    assert csv_page(result).count("\n") == 1 + len(runs_of(result.records))
    write_events(result, tmp_path)


def test_a_probe_without_lengths_has_its_frontier_by_precision() -> None:
    spec = probe_spec(
        search__sequence_length=None,
        model__layers=[{"Input": {"shape": [64]}}, {"Dense": {"units": 1}}],
        dataset__synthetic__inputs={"shape": [64], "dtype": "float32"},
    )
    result = finished(spec)
    frontier = figures(result)["frontier"]
    assert frontier["has_lengths"] is False
    assert {dot["x"] for series in frontier["series"] for dot in series["runs"]} == {"float32", "mixed_bfloat16"}
    assert "sequence" not in html_page(result).split('<section id="trial-table">')[1].split("</thead>")[0]


def test_the_frontier_has_a_line_for_each_precision_and_every_run_by_how_it_ended(result: ProbeResult) -> None:
    frontier = figures(result)["frontier"]
    assert [series["name"] for series in frontier["series"]] == ["float32", "mixed_bfloat16"]
    for series in frontier["series"]:
        assert [point["x"] for point in series["line"]] == [128, 256, 384, 512]
        largest = [point["y"] for point in series["line"]]
        assert largest == sorted(largest, reverse=True)
        for point, edge in zip(series["line"], series["edge"], strict=True):
            assert edge["y"] == pytest.approx(point["y"], rel=0.1)  # the fit and what ran
    endings = {dot["ending"] for series in frontier["series"] for dot in series["runs"]}
    assert {"fits", "device_oom", "over_headroom"} <= endings


def test_the_page_shows_buckets_lengths_findings_and_an_explanation(result: ProbeResult) -> None:
    assert result.best is not None
    assert result.best.confirmed_by is not None
    finding = Finding(kind="leak", message="the list grows", where="train.py:7", hint="clear it", bytes_per_step=100)
    confirm = result.best.confirmed_by
    leaking = dataclasses.replace(confirm, outcome=dataclasses.replace(confirm.outcome, findings=(finding,)))
    best = dataclasses.replace(result.best, confirmed_by=leaking)
    page = html_page(dataclasses.replace(result, best=best), explanation=explanation(result))
    for words in ("the list grows", "train.py:7", "How long samples are", "activations kept for the backward pass"):
        assert words in page
    assert "attention&lt;b&gt;" in page
    shown = payload(page)["figures"]
    assert [bucket["batch_size"] for bucket in shown["lengths"]["buckets"]] == list(result.buckets.batch_sizes)  # type: ignore[union-attr]
    assert shown["parts"]["bars"][0]["peak_bytes"] == 330 * MIB


def test_the_page_may_ask_nobody_and_run_nothing_but_its_own_scripts(result: ProbeResult) -> None:
    page = html_page(result)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe-eval" not in policy[1]
    assert policy[1].count("sha256-") == 2
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(?:src|href)="(?!#|data:)', own)


def test_a_trials_row_tells_the_same_as_the_terminal(result: ProbeResult) -> None:
    from oomtune.report.model import trial_row

    for entry, record in zip(trial_entries(result), result.records, strict=True):
        row = trial_row(record, result.budget)
        assert entry.ended == row.outcome
        assert (entry.run.peak_bytes is not None) == (row.share is not None)
        if entry.run.peak_bytes is not None:
            assert format_bytes(entry.run.peak_bytes) == row.memory
