"""The report in a real browser: that it opens, draws, answers to mouse and keyboard, and asks nobody for anything."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from oomtune.domain import ProbeResult
from oomtune.report.html import html_page
from tests.browser.conftest import Page
from tests.explanations import explanation
from tests.finished import FailingDevice, finished, probe_spec

PLOTS = ("frontier", "curve", "trials", "step", "throughput", "lengths", "parts")
TUNED = "tuned:\n  batch_size: 552\n  note: '<b>&amp;'\n"
BAD_NAME = "<script>document.title='broken'</script><img src=x onerror=alert(1)>"
LIGHT_PAPER = "rgb(251, 250, 247)"


@pytest.fixture(scope="module")
def result() -> ProbeResult:
    return finished(probe_spec(with_data=True))


@pytest.fixture(scope="module", params=[(1400, "light"), (400, "dark")], ids=["wide", "phone"])
def opened(
    page: Page, result: ProbeResult, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Page]:
    """The report at one width; the tests below share the page, as opening it is what takes time."""
    width, scheme = request.param
    path = tmp_path_factory.mktemp("report") / "a report & more.html"
    path.write_text(html_page(result, tuned_text=TUNED, explanation=explanation(result)), encoding="utf-8")
    page.open(path, width=width, scheme=scheme)
    page.screenshot(f"report-{width}-{scheme}")
    yield page
    assert page.said() == []  # whatever was done to it


def test_it_opens_and_draws_every_plot_and_asks_nobody_for_anything(opened: Page) -> None:
    assert opened.said() == []
    assert all(opened.drawn(plot) > 2 for plot in PLOTS), {plot: opened.drawn(plot) for plot in PLOTS}
    assert opened.run("return document.documentElement.scrollWidth - innerWidth") == 0
    assert opened.run("return performance.getEntriesByType('resource').length") == 0


def test_hovering_a_trial_tells_what_it_was(opened: Page, result: ProbeResult) -> None:
    bars = opened.driver.find_elements(By.CSS_SELECTOR, "[data-plot=trials] .point")
    opened.run("arguments[0].scrollIntoView({block: 'center'})", bars[0])
    ActionChains(opened.driver).move_to_element(bars[0]).perform()
    opened.wait("return document.querySelectorAll('[data-plot=trials] .hoverlayer .hovertext').length > 0")
    told = opened.run("return document.querySelector('[data-plot=trials] .hoverlayer').textContent")
    first = result.records[0]
    assert "trial 1, calibrate" in told
    assert f"batch {first.outcome.failed_batch_size}, {first.trial.candidate.lane}" in told


def column(page: Page, number: int) -> list[str]:
    rows = "[...document.querySelectorAll('#trial-table tbody tr')]"
    found: list[str] = page.run(f"return {rows}.map(row => row.cells[arguments[0]].dataset.value)", number)
    return found


def test_a_heading_sorts_by_mouse_and_by_keyboard(opened: Page) -> None:
    headings = opened.driver.find_elements(By.CSS_SELECTOR, "#trial-table th")
    peak = next(index for index, heading in enumerate(headings) if "peak" in heading.text)
    button = headings[peak].find_element(By.TAG_NAME, "button")
    button.click()
    rising = [float(value) for value in column(opened, peak) if value]
    assert rising == sorted(rising)
    assert headings[peak].get_attribute("aria-sort") == "ascending"
    button.send_keys(Keys.ENTER)
    values = column(opened, peak)
    known = [float(value) for value in values if value]
    assert known == rising[::-1]
    assert values[len(known) :] == [""] * (len(values) - len(known))  # what is not known stays last
    assert headings[peak].get_attribute("aria-sort") == "descending"
    assert "descending" in opened.run("return document.querySelector('[role=status]').textContent")


@pytest.mark.parametrize("with_clipboard", [True, False])
def test_copying_works_from_a_file(opened: Page, with_clipboard: bool) -> None:
    if not with_clipboard:
        opened.run("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    opened.run("document.addEventListener('copy', () => { window.copied = getSelection().toString(); })")
    opened.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    button = opened.driver.find_element(By.CSS_SELECTOR, "[data-copy=tuned-text]")
    opened.run("arguments[0].textContent = 'Copy'", button)
    button.send_keys(Keys.SPACE)
    opened.wait("return document.querySelector('[data-copy=tuned-text]').textContent === 'Copied'")
    got = "await navigator.clipboard.readText()" if with_clipboard else "window.copied"
    text = opened.driver.execute_async_script(f"const done = arguments[0]; (async () => done({got}))()")
    assert text.strip() == TUNED.strip()


def test_every_figure_is_told_in_words_and_everything_can_be_reached_by_tab(opened: Page) -> None:
    plots = "[...document.querySelectorAll('[data-plot]')]"
    told = opened.run(f"return {plots}.map(plot => plot.getAttribute('aria-label'))")
    assert all(len(words) > 40 for words in told)
    reachable = "[...document.querySelectorAll('button, summary, .scroll, pre, a[href]')]"
    assert opened.run(f"return {reachable}.every(one => one.tabIndex >= 0)")
    headings = opened.run("return [...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings))


def test_page_and_plots_follow_when_the_screen_turns(opened: Page) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    label = "return document.querySelector('[data-plot=trials]')._fullLayout.hoverlabel.bgcolor"
    before, was_light = opened.run(label), opened.run(paper) == LIGHT_PAPER
    opened.turn("dark" if was_light else "light", 400 if was_light else 1400)
    wanted = "< 400" if was_light else "> 1000"
    opened.wait(f"return document.querySelector('[data-plot=trials] svg').clientWidth {wanted}")
    assert opened.run(label) != before
    assert (opened.run(paper) == LIGHT_PAPER) is not was_light


def test_a_lane_whose_edge_is_not_known_has_a_ring_that_the_legend_names(page: Page, tmp_path: Path) -> None:
    early = finished(max_trials=3)
    path = tmp_path / "early.html"
    path.write_text(html_page(early), encoding="utf-8")
    page.open(path)
    names = page.run(
        "return [...document.querySelectorAll('[data-plot=frontier] .legendtext')].map(t => t.textContent)"
    )
    assert "edge not known, may be larger" in names
    traces = page.run("return document.querySelector('[data-plot=frontier]').data.map(t => [t.marker?.symbol, t.y])")
    (rings,) = [heights for symbol, heights in traces if symbol == "circle-open"]
    assert sorted(rings) == sorted(point.batch_size for point in early.frontier if not point.edge_known)
    page.screenshot("report-early")


def test_the_words_of_users_stay_text(page: Page, tmp_path: Path) -> None:
    spec = probe_spec()
    space = dataclasses.replace(spec.space, sequence_lengths=None, precisions=(BAD_NAME,))
    spec = dataclasses.replace(spec, name=BAD_NAME, space=space)
    path = tmp_path / "bad.html"
    path.write_text(html_page(finished(spec, device_class=FailingDevice), tuned_text=BAD_NAME), encoding="utf-8")
    page.open(path)
    assert page.said() == []
    for place in (".xtick", ".legendtext"):
        assert page.run(f"return document.querySelector('[data-plot=frontier] {place}').textContent") == BAD_NAME
    assert page.driver.title.startswith("<script>")
    assert page.driver.find_element(By.TAG_NAME, "h1").text == BAD_NAME
    assert "alert('label')" in page.driver.find_element(By.CSS_SELECTOR, ".sentence").text
    assert page.run("return document.querySelectorAll('img, h1 script, pre script').length") == 0
