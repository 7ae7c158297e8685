"""The report in a real browser: it opens, draws, reacts to mouse and keyboard, and needs no network."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from oomtune.domain import ProbeResult
from oomtune.report.html import probe_page
from tests.browser.conftest import Page
from tests.support.explanations import explanation
from tests.support.finished import MIB, FailingDevice, finished, probe_spec

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
    """Open the report at one width. The tests below share the page because opening it takes time."""
    width, scheme = request.param
    path = tmp_path_factory.mktemp("report") / "a report & more.html"
    path.write_text(probe_page(result, tuned_text=TUNED, explanation=explanation(result)), encoding="utf-8")
    page.open(path, width=width, scheme=scheme)
    page.screenshot(f"report-{width}-{scheme}")
    yield page
    assert page.console() == []


def test_the_page_draws_every_plot_and_requests_nothing(opened: Page) -> None:
    assert opened.console() == []
    assert all(opened.drawn(plot) > 2 for plot in PLOTS), {plot: opened.drawn(plot) for plot in PLOTS}
    assert opened.run("return document.documentElement.scrollWidth - innerWidth") == 0
    assert opened.run("return performance.getEntriesByType('resource').length") == 0


def test_hovering_over_a_bar_describes_its_trial(opened: Page, result: ProbeResult) -> None:
    bars = opened.driver.find_elements(By.CSS_SELECTOR, "[data-plot=trials] .point")
    opened.run("arguments[0].scrollIntoView({block: 'center'})", bars[0])
    ActionChains(opened.driver).move_to_element(bars[0]).perform()
    opened.wait("return document.querySelectorAll('[data-plot=trials] .hoverlayer .hovertext').length > 0")
    hover = opened.run("return document.querySelector('[data-plot=trials] .hoverlayer').textContent")
    first = result.records[0]
    assert "trial 1, calibrate" in hover
    assert f"batch {first.ended_at.batch_size}, {first.trial.candidate.lane}" in hover


def column(page: Page, number: int) -> list[str]:
    rows = "[...document.querySelectorAll('#trial-table tbody tr')]"
    values: list[str] = page.run(f"return {rows}.map(row => row.cells[arguments[0]].dataset.value)", number)
    return values


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
    assert values[len(known) :] == [""] * (len(values) - len(known))  # unknown values stay last
    assert headings[peak].get_attribute("aria-sort") == "descending"
    assert "descending" in opened.run("return document.querySelector('[role=status]').textContent")


@pytest.mark.parametrize("with_clipboard", [True, False])
def test_copying_works_when_the_page_is_opened_from_a_file(opened: Page, with_clipboard: bool) -> None:
    if not with_clipboard:
        opened.run("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    opened.run("document.addEventListener('copy', () => { window.copied = getSelection().toString(); })")
    opened.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    button = opened.driver.find_element(By.CSS_SELECTOR, "[data-copy=tuned-text]")
    opened.run("document.querySelector('[role=status]').textContent = ''")
    button.send_keys(Keys.SPACE)
    opened.wait("return document.querySelector('[role=status]').textContent === 'Copied'")
    got = "await navigator.clipboard.readText()" if with_clipboard else "window.copied"
    text = opened.driver.execute_async_script(f"const done = arguments[0]; (async () => done({got}))()")
    assert text.strip() == TUNED.strip()


def test_every_figure_has_a_text_alternative_and_every_control_takes_the_focus(opened: Page) -> None:
    plots = "[...document.querySelectorAll('[data-plot]')]"
    labels = opened.run(f"return {plots}.map(plot => plot.getAttribute('aria-label'))")
    assert all(len(label) > 40 for label in labels)
    reachable = "[...document.querySelectorAll('button, summary, .scroll, pre, a[href]')]"
    assert opened.run(f"return {reachable}.every(one => one.tabIndex >= 0)")
    headings = opened.run("return [...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings))


def test_page_and_plots_follow_the_colour_scheme_and_the_width(opened: Page) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    label = "return document.querySelector('[data-plot=trials]')._fullLayout.hoverlabel.bgcolor"
    before, was_light = opened.run(label), opened.run(paper) == LIGHT_PAPER
    opened.emulate("dark" if was_light else "light", 400 if was_light else 1400)
    wanted = "< 400" if was_light else "> 1000"
    opened.wait(f"return document.querySelector('[data-plot=trials] svg').clientWidth {wanted}")
    opened.wait(f"{label} !== '{before}'")
    assert (opened.run(paper) == LIGHT_PAPER) is not was_light


def test_a_ring_with_a_legend_marks_a_lane_whose_edge_is_not_known(page: Page, tmp_path: Path) -> None:
    early = finished(max_trials=3)
    path = tmp_path / "early.html"
    path.write_text(probe_page(early), encoding="utf-8")
    page.open(path)
    names = page.run(
        "return [...document.querySelectorAll('[data-plot=frontier] .legendtext')].map(t => t.textContent)"
    )
    assert "edge not known, may be larger" in names
    traces = page.run("return document.querySelector('[data-plot=frontier]').data.map(t => [t.marker?.symbol, t.y])")
    (rings,) = [heights for symbol, heights in traces if symbol == "circle-open"]
    assert sorted(rings) == sorted(point.batch_size for point in early.frontier if not point.edge_known)
    page.screenshot("report-early")


def show(page: Page, tmp_path: Path, result: ProbeResult) -> Page:
    path = tmp_path / "report.html"
    path.write_text(probe_page(result), encoding="utf-8")
    page.open(path)
    return page


def test_the_frontier_of_one_length_is_drawn(page: Page, tmp_path: Path) -> None:
    spec = probe_spec(search__sequence_length=[128], search__precision=["float32"])
    show(page, tmp_path, finished(spec))
    traces = page.run(
        "return document.querySelector('[data-plot=frontier]').data.map(t => [t.mode, t.x.length, t.showlegend])"
    )
    assert [mode for mode, points, _ in traces if points == 1] == ["markers"] * 2
    # The marks of the largest batch and of the fit's edge, and the runs.
    assert page.run("return document.querySelectorAll('[data-plot=frontier] .trace.scatter').length") == 3
    assert page.console() == []


def test_lines_differ_without_colour(page: Page, tmp_path: Path) -> None:
    spec = probe_spec(search__precision=["float32", "mixed_bfloat16", "mixed_float16"])
    show(page, tmp_path, finished(spec))
    dashes = (
        "return document.querySelector('[data-plot={0}]').data"
        ".filter(t => t.mode === 'lines').map(t => [t.name, t.line.dash, t.line.color])"
    )
    frontier = {(name, dash) for name, dash, _ in page.run(dashes.format("frontier"))}
    assert len(frontier) == len({dash for _, dash in frontier}) == 4
    curve = page.run(dashes.format("curve"))
    assert len({(dash, colour) for _, dash, colour in curve}) == len(curve) == 12
    legend = (
        "return [...document.querySelectorAll('[data-plot=curve] .legend .js-line')].map(l => l.style.strokeDasharray)"
    )
    page.driver.find_element(By.CSS_SELECTOR, "#curve button.lanes").click()
    page.wait_for(lambda: len(page.run(legend)) == 12)  # the legend draws a piece of each line


def test_a_key_press_adds_the_lanes_that_are_not_drawn_at_first(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, finished())
    caption = page.driver.find_element(By.CSS_SELECTOR, "#curve figcaption").text
    assert "At first 4 of 8 lanes are drawn" in caption
    before = page.drawn("curve")
    button = page.driver.find_element(By.CSS_SELECTOR, "#curve button.lanes")
    assert button.text == "Show all 8 lanes"
    button.send_keys(Keys.ENTER)
    page.wait_for(lambda: page.drawn("curve") > before)
    assert "all lanes" in page.run("return document.querySelector('[role=status]').textContent")
    button.send_keys(Keys.ENTER)
    page.wait_for(lambda: page.drawn("curve") == before)
    assert button.text == "Show all 8 lanes"


OUTSIDE = """
const boxes = (plot, what) => [...plot.querySelectorAll(what)].filter(one => one.textContent.trim()).map(one => one.getBoundingClientRect());
return [...document.querySelectorAll('[data-plot]')].flatMap(plot => {
  const area = plot.getBoundingClientRect();
  return boxes(plot, 'text').filter(r => r.left < area.left - 1 || r.right > area.right + 1 || r.bottom > area.bottom + 1);
}).length;
"""


@pytest.mark.parametrize("width", [400, 1400])
def test_the_legend_lists_the_drawn_lanes_without_scrolling(page: Page, tmp_path: Path, width: int) -> None:
    precisions = ["float32", "mixed_bfloat16", "mixed_float16"]
    spec = probe_spec(search__sequence_length=list(range(64, 513, 64)), search__precision=precisions)
    path = tmp_path / "lanes.html"
    path.write_text(probe_page(finished(spec)), encoding="utf-8")
    page.open(path, width=width)
    names = "return document.querySelectorAll('[data-plot=curve] .legendtext').length"
    assert page.run(names) == 4
    assert page.run(OUTSIDE) == 0
    button = page.driver.find_element(By.CSS_SELECTOR, "#curve button.lanes")
    assert button.text == "Show all 24 lanes"
    button.send_keys(Keys.ENTER)
    page.wait(f"{names} === 24")
    page.wait_for(lambda: page.run(OUTSIDE) == 0)
    title, legend, bar = page.run(
        "return ['.xtitle', '.legend', '.legend .scrollbar'].map(one =>"
        " document.querySelector(`[data-plot=curve] ${one}`).getBoundingClientRect()).map(r => [r.top, r.bottom])"
    )
    assert title[1] <= legend[0]
    assert bar[0] == bar[1]  # nothing to scroll
    page.screenshot(f"report-lanes-{width}")


@pytest.mark.parametrize("width", [400, 1400])
def test_long_names_are_shortened_to_fit(page: Page, tmp_path: Path, width: int) -> None:
    spec = probe_spec()
    long = "a layer's name " * 8 + "\u975e\u5e38" * 20
    space = dataclasses.replace(spec.space, sequence_lengths=None, precisions=(f"{long} 1", f"{long} 2"))
    path = tmp_path / "long.html"
    path.write_text(probe_page(finished(dataclasses.replace(spec, name=long * 3, space=space))), encoding="utf-8")
    page.open(path, width=width)
    assert page.run(OUTSIDE) == 0
    assert page.run("return document.documentElement.scrollWidth - innerWidth") == 0
    names = page.run(
        "return [...document.querySelectorAll('[data-plot=frontier] .legendtext')].map(t => t.textContent)"
    )
    assert [name[-1] for name in names if "\u2026" in name] == ["1", "2"]
    page.screenshot(f"report-long-{width}")


def test_when_nothing_fits_the_frontier_shows_the_trials_at_whole_batches(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, finished(limit_bytes=20 * MIB))
    texts = "return [...document.querySelectorAll('[data-plot=frontier] {0}')].map(t => t.textContent)"
    assert page.run(texts.format(".legendtext")) == ["float32", "mixed_bfloat16"]
    assert page.run(texts.format(".ytick")) == ["0", "1"]


def test_tab_reaches_the_table_headings_and_enter_sorts(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, finished(max_trials=3))
    stops = page.run("return [...document.querySelectorAll('a[href], button, summary, .scroll, pre')].length")
    focused = "return document.activeElement.closest('#trial-table th')?.textContent.trim() ?? ''"
    for _ in range(stops):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        if page.run(focused).startswith("peak"):
            break
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") != "none"
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    assert page.run("return document.activeElement.closest('th').getAttribute('aria-sort')") == "ascending"


def test_numbers_inside_text_sort_as_numbers(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, finished(probe_spec(search__sequence_length=[64, 128, 1024])))
    for table, heading in (("lane-table", "lane"), ("trial-table", "ended")):
        headings = page.driver.find_elements(By.CSS_SELECTOR, f"#{table} th")
        at = next(index for index, one in enumerate(headings) if one.text.startswith(heading))
        headings[at].find_element(By.TAG_NAME, "button").click()
        cells = f"[...document.querySelectorAll('#{table} tbody tr')].map(row => row.cells[{at}])"
        texts = page.run(f"return {cells}.map(cell => cell.dataset.value ?? cell.textContent)")
        numbers = [int(match[1]) for text in texts if (match := re.match(r"(?:sequence )?(\d+)", text))]
        assert numbers == sorted(numbers)
        assert len({len(str(number)) for number in numbers}) > 1


@pytest.mark.parametrize("width", [400, 1400])
def test_table_captions_are_not_cut_off(page: Page, tmp_path: Path, width: int) -> None:
    show(page, tmp_path, finished())
    page.emulate("light", width)
    page.wait(f"return innerWidth === {width}")
    captions = "return [...document.querySelectorAll('caption')].map(c => c.getBoundingClientRect()).map(r => [r.left, r.right])"
    for left, right in page.run(captions):
        assert 0 <= left < right <= width


class FailsSoon(FailingDevice):
    trials_before = 1


def test_hostile_text_stays_text(page: Page, tmp_path: Path) -> None:
    spec = probe_spec()
    space = dataclasses.replace(spec.space, sequence_lengths=None, precisions=(BAD_NAME,))
    spec = dataclasses.replace(spec, name=BAD_NAME, space=space)
    path = tmp_path / "bad.html"
    path.write_text(probe_page(finished(spec, device_class=FailsSoon), tuned_text=BAD_NAME), encoding="utf-8")
    page.open(path)
    assert page.console() == []
    for place in (".xtick", ".legendtext"):
        shown = page.run(f"return document.querySelector('[data-plot=frontier] {place}').textContent")
        begins, _, ends = shown.partition("…")
        assert BAD_NAME.startswith(begins)
        assert BAD_NAME.endswith(ends)
        assert len(begins) > 5
    assert page.driver.title.startswith("<script>")
    assert page.driver.find_element(By.TAG_NAME, "h1").text == BAD_NAME
    assert "alert('label')" in page.driver.find_element(By.CSS_SELECTOR, ".sentence").text
    assert page.run("return document.querySelectorAll('img, h1 script, pre script').length") == 0
