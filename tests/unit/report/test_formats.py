"""A finished probe in every format: the same numbers, every way to end, and escaped text."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from oomtune.domain import Failed, Finding, ProbeResult, Verdict, runs_of
from oomtune.report.answer import answer_rows, fitted_lines, lane_rows, length_rows, verdict_words
from oomtune.report.csv import probe_csv
from oomtune.report.figures import figures
from oomtune.report.html import probe_page
from oomtune.report.json_document import probe_document
from oomtune.report.junit import probe_junit, xml_text
from oomtune.report.markdown import markdown_block, markdown_text, probe_markdown
from oomtune.report.tensorboard import write_events
from oomtune.report.terminal import trial_table
from oomtune.report.trial_rows import trial_rows
from oomtune.storage.tuned import tuned_values
from oomtune.units import format_bytes
from tests.support.explanations import explanation
from tests.support.finished import MIB, FailingDevice, InterruptedDevice, finished, probe_spec
from tests.support.rendered import event_values, page_data

HOSTILE = "<script>alert(1)</script> | `x` \x00\x1b & ]]>"


@pytest.fixture(scope="module")
def result() -> ProbeResult:
    return finished(probe_spec(with_data=True))


@pytest.fixture(scope="module")
def large() -> ProbeResult:
    """Return a probe with batches and milliseconds in the thousands."""
    spec = probe_spec(search__batch_size={"min": 1, "max": 100_000}, search__objective="batch_size")
    return finished(spec, limit_bytes=8 * 1024 * MIB)


@pytest.mark.parametrize("which", ["result", "large"])
def test_every_format_shows_the_same_numbers(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result: ProbeResult = request.getfixturevalue(which)
    document = probe_document(result)
    lines = list(csv.DictReader(io.StringIO(probe_csv(result))))
    page, text, suite = probe_page(result), probe_markdown(result), ElementTree.fromstring(probe_junit(result))
    logs = write_events(result, tmp_path)
    bars = page_data(page)["figures"]["trials"]["bars"]
    cases = {case.attrib["name"].split()[1]: case for case in suite.iter("testcase") if "trial " in case.attrib["name"]}
    assert len(lines) == len(runs_of(result.records))
    for trial in document["trials"]:
        own_lines = [line for line in lines if line["trial"] == str(trial["number"])]
        further = [*trial.get("further", ()), *filter(None, [trial.get("further_failed")])]
        own = own_lines[-1 - len(further)]
        assert own["outcome"] == trial["outcome"]
        others = [[int(line["batch_size"]), int(line["peak_bytes"] or 0)] for line in own_lines if line is not own]
        assert [[size["batch_size"], size["peak_bytes"] or 0] for size in further] == others[len(trial["points"]) :]
        assert float(own_lines[-1]["duration_s"]) == pytest.approx(trial["duration_s"])
        climbed = [[int(line["batch_size"]), int(line["peak_bytes"])] for line in own_lines[: len(trial["points"])]]
        assert climbed == [[point["batch_size"], point["peak_bytes"]] for point in trial["points"]]
        shown = own_lines[len(trial["points"]) - 1] if trial["points"] else own
        assert trial["peak_bytes"] == (int(shown["peak_bytes"]) if shown["peak_bytes"] else None)
        assert trial["step_ms"] == (float(shown["step_ms"]) if shown["step_ms"] else None)
        if not shown["peak_bytes"]:
            continue
        peak = int(shown["peak_bytes"])
        bar = next(bar for bar in bars if bar["number"] == trial["number"])
        without_further = own_lines[: len(own_lines) - len(further)]
        assert bar["peak_bytes"] == max(int(line["peak_bytes"] or 0) for line in without_further)
        assert f'data-value="{peak}">{format_bytes(peak)}<' in page
        assert f"peak {peak} bytes" in (cases[f"{trial['number']}"].findtext("system-out") or "")
        assert f"| {format_bytes(peak)} | {peak / result.budget.limit_bytes:.0%} |" in text
        session = event_values(logs / f"trial-{trial['number']:03d}-batch-{shown['batch_size']}")
        assert session["peak_bytes"].tensor.double_val[0] == peak
        assert session["step_ms"].tensor.double_val[0] == float(shown["step_ms"])
    best = document["best"]
    assert f'<p class="value">{best["batch_size"]}</p>' in page
    assert f"| batch size | {best['batch_size']} |" in text
    assert (best["batch_size"] > 1000) == (which == "large")
    rows = dict(answer_rows(result))
    assert rows["batch size"] == str(best["batch_size"])
    assert "<dt>batch size</dt>" not in page  # only in large type above
    assert f"<dt>step</dt><dd>{rows['step']}</dd>" in page
    assert f"| step | {rows['step']} |" in text
    assert f"| {rows['step'].partition(' ms')[0]} ms |" in text  # also in the row of the winning trial
    for row in length_rows(result):
        assert f"| {row.length} | {row.share_cut:.1%} | {row.share_padding:.0%} |" in text
        assert f'>{row.share_cut:.1%}</td><td class="number">{row.share_padding:.0%}</td>' in page


def test_the_terminal_shows_the_memory_and_the_ending_of_every_trial(result: ProbeResult) -> None:
    text = io.StringIO()
    Console(file=text, width=200).print(trial_table(result.records, result.budget))
    lines = text.getvalue().splitlines()[1:]
    for row, line in zip(trial_rows(result), lines, strict=True):
        assert row.ended in line
        assert (row.run.peak_bytes is not None) == (row.share is not None)
        assert row.memory in line
        assert (format_bytes(row.run.peak_bytes) if row.run.peak_bytes is not None else "") == row.memory


def test_the_batch_at_which_a_fit_meets_the_budget_is_one_number_everywhere(result: ProbeResult) -> None:
    lines = fitted_lines(result)
    page, text, drawn = probe_page(result), probe_markdown(result), figures(result, lines)
    rows = [row for row in lane_rows(result, lines) if row.line_edge is not None]
    assert rows
    for row in rows:
        edge = f"{row.line_edge:,.0f}"
        (series,) = [series for series in drawn["frontier"]["series"] if series["name"] == row.lane.precision]
        (point,) = [point for point in series["edge"] if point["x"] == row.lane.sequence_length]
        assert (point["y"], point["at"]) == (row.line_edge, edge)
        (lane,) = [lane for lane in drawn["curve"]["lanes"] if lane["name"] == str(row.lane)]
        (x, y), (last_x, last_y) = lane["fit"]["from"], lane["fit"]["to"]
        met = x + (result.budget.budget_bytes - y) * (last_x - x) / (last_y - y)
        assert met == pytest.approx(row.line_edge)
        assert f">batch {edge}</td>" in page
        assert f"| {edge} |" in text
    assert result.best is not None
    (winner,) = [row for row in rows if row.lane == result.best.candidate.lane]
    assert f"meets the budget at batch {winner.line_edge:,.0f}." in drawn["curve"]["summary"]


@pytest.mark.parametrize("effective_batch_size", [None, 600])
def test_the_document_has_the_accumulation_of_the_tuned_config(effective_batch_size: int | None) -> None:
    result = finished(probe_spec(training__effective_batch_size=effective_batch_size))
    accumulation = probe_document(result)["accumulation"]
    tuned = tuned_values({}, result, output=Path("m.tuned.yaml"), spec_sha256="", origin={})["tuned"]
    assert accumulation == {key: tuned[key] for key in ("gradient_accumulation_steps", "effective_batch_size")}
    assert (accumulation["gradient_accumulation_steps"] > 1) == (effective_batch_size is not None)


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
def test_every_format_shows_every_way_a_probe_can_end(
    ended: dict[str, Any], verdict: Verdict, failures: int, errors: int, tmp_path: Path
) -> None:
    result = finished(**ended)
    assert result.verdict is verdict
    words = verdict_words(result)
    assert words.sentence.endswith(".")
    assert words.word in probe_page(result)
    assert words.is_good == (not failures and not errors) == ('id="answer" class="good"' in probe_page(result))
    assert words.sign in probe_markdown(result)
    suite = ElementTree.fromstring(probe_junit(result))
    assert (suite.attrib["failures"], suite.attrib["errors"]) == (str(failures), str(errors))
    assert probe_csv(result).count("\n") == 1 + len(runs_of(result.records))
    write_events(result, tmp_path)


def test_the_page_shows_buckets_lengths_findings_and_an_explanation(result: ProbeResult) -> None:
    assert result.best is not None
    assert result.best.confirmed_by is not None
    finding = Finding(kind="leak", message="the list grows", where="train.py:7", hint="clear it", bytes_per_step=100)
    confirm = result.best.confirmed_by
    leaking = dataclasses.replace(confirm, outcome=dataclasses.replace(confirm.outcome, findings=(finding,)))
    best = dataclasses.replace(result.best, confirmed_by=leaking)
    page = probe_page(dataclasses.replace(result, best=best), explanation=explanation(result))
    for words in ("the list grows", "train.py:7", "Sample lengths", "activations kept for the backward pass"):
        assert words in page
    assert "attention&lt;b&gt;" in page
    drawn = page_data(page)["figures"]
    assert result.buckets is not None
    assert [bucket["batch_size"] for bucket in drawn["lengths"]["buckets"]] == list(result.buckets.batch_sizes)
    assert drawn["parts"]["bars"][0]["peak_bytes"] == 330 * MIB


def test_the_page_may_use_no_network_and_run_only_its_own_scripts(result: ProbeResult) -> None:
    page = probe_page(result)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe-eval" not in policy[1]
    assert policy[1].count("sha256-") == 2
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'(?:src|href)="(?!#|data:)', markup)


def test_hostile_text_stays_text_in_every_format(tmp_path: Path) -> None:
    spec = dataclasses.replace(probe_spec(), name=HOSTILE)
    failed = finished(spec, device_class=FailingDevice)
    page = probe_page(failed, tuned_text=HOSTILE)
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # Plotly's script and ours
    assert "<script>alert" not in markup
    assert "&lt;script&gt;alert" in markup
    assert page_data(page)["figures"]
    text = probe_markdown(failed, tuned_text=HOSTILE)
    assert "<script>" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    suite = ElementTree.fromstring(probe_junit(failed))
    assert "�" in next(suite.iter("testcase")).attrib["name"]
    write_events(failed, tmp_path)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", path.name) for path in tmp_path.rglob("*"))


@given(st.text())
@settings(max_examples=200)
def test_any_text_can_be_escaped(text: str) -> None:
    element = ElementTree.Element("b", {"c": xml_text(text)})
    element.text = xml_text(text)
    ElementTree.fromstring(f"<a>{ElementTree.tostring(element, encoding='unicode')}</a>")
    assert "<" not in markdown_text(text)
    assert "\n" not in markdown_text(text)
    fence, *_, end = markdown_block(text)
    assert fence == end
    assert all(not line.strip().startswith(fence) for line in xml_text(text).splitlines())


def test_an_error_that_looks_like_a_formula_is_quoted_in_csv() -> None:
    broken = finished(probe_spec(), device_class=FailingDevice)
    last = broken.records[-1]
    assert isinstance(last.outcome, Failed)
    error = dataclasses.replace(FailingDevice.error, message="=HYPERLINK(1)")
    record = dataclasses.replace(last, outcome=dataclasses.replace(last.outcome, error=error))
    text = probe_csv(dataclasses.replace(broken, records=(*broken.records[:-1], record)))
    assert list(csv.DictReader(io.StringIO(text)))[-1]["error"] == "'=HYPERLINK(1)"
