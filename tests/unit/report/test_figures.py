"""The data behind the plots of the HTML page."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest

from oomtune.domain import ProbeResult
from oomtune.report.answer import fitted_lines
from oomtune.report.figures import Figure, figures
from oomtune.report.html import probe_page
from oomtune.report.trial_rows import Ending
from tests.support.explanations import explanation
from tests.support.finished import finished, probe_spec
from tests.support.rendered import page_data


@pytest.fixture(scope="module")
def result() -> ProbeResult:
    return finished(probe_spec(with_data=True))


def frontier_of(result: ProbeResult) -> Figure:
    return figures(result, fitted_lines(result))["frontier"]


def test_the_frontier_marks_edges_that_are_not_known() -> None:
    frontier = frontier_of(finished(max_trials=3))
    known = {point["known"] for series in frontier["series"] for point in series["line"]}
    assert False in known
    assert "A ring marks lanes" in frontier["summary"]


def test_the_script_draws_every_key_of_the_data(result: ProbeResult) -> None:
    script = resources.files("oomtune.report").joinpath("assets/report.js").read_text()
    data = page_data(probe_page(result, explanation=explanation(result)))

    def keys(value: Any) -> set[str]:
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {*(value if isinstance(value, dict) else ())}.union(*map(keys, entries))

    ours = keys(data) - {ending.key for ending in Ending}
    assert {key for key in ours if not re.search(rf"\b{key}\b", script)} == set()


def test_without_lengths_the_frontier_is_drawn_by_precision() -> None:
    spec = probe_spec(
        search__sequence_length=None,
        model__layers=[{"Input": {"shape": [64]}}, {"Dense": {"units": 1}}],
        dataset__synthetic__inputs={"shape": [64], "dtype": "float32"},
    )
    result = finished(spec)
    frontier = frontier_of(result)
    assert frontier["has_lengths"] is False
    assert {dot["x"] for series in frontier["series"] for dot in series["runs"]} == {"float32", "mixed_bfloat16"}
    assert "sequence" not in probe_page(result).split('<section id="trial-table">')[1].split("</thead>")[0]


def test_the_frontier_has_a_line_for_each_precision_and_a_mark_for_every_ending(result: ProbeResult) -> None:
    frontier = frontier_of(result)
    assert [series["name"] for series in frontier["series"]] == ["float32", "mixed_bfloat16"]
    for series in frontier["series"]:
        assert [point["x"] for point in series["line"]] == [128, 256, 384, 512]
        largest = [point["y"] for point in series["line"]]
        assert largest == sorted(largest, reverse=True)
        for point, edge in zip(series["line"], series["edge"], strict=True):
            assert edge["y"] == pytest.approx(point["y"], rel=0.1)  # the fit is close to what ran
    endings = {dot["ending"] for series in frontier["series"] for dot in series["runs"]}
    assert {"fits", "device_oom", "over_headroom"} <= endings
