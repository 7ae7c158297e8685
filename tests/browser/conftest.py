"""A real Chromium, headless, started once. In CI a missing one fails the tests; elsewhere they say how to get it."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.cli import ROOT

BUILD = ROOT / "build" / "report"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW_TO_GET_IT = "no Chromium: apt-get install chromium chromium-driver, or set CHROMIUM and CHROMEDRIVER"


class Page:
    """One report, open in the browser at a width, in light or dark."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, path: Path, *, width: int = 1400, scheme: str = "light") -> None:
        self.said()  # what earlier pages said is not ours
        self.turn(scheme, width)
        self.driver.get(path.as_uri())
        self.wait("return document.documentElement.dataset.drawn === 'yes'")  # plots are drawn after the page is there

    def cdp(self, verb: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.driver.execute_cdp_cmd(verb, arguments)
        return answer

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> None:
        """Until the script returns something true."""
        WebDriverWait(self.driver, 10, poll_frequency=0.05).until(lambda driver: driver.execute_script(script))

    def wait_for(self, seen: Callable[[], bool]) -> None:
        """Until that is so."""
        WebDriverWait(self.driver, 10, poll_frequency=0.05).until(lambda _: seen())

    def said(self) -> list[str]:
        """What the console got: errors, warnings, and what the page's policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def turn(self, scheme: str, width: int) -> None:
        """As when the system goes dark, or a window is made narrow."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)

    def drawn(self, plot: str) -> int:
        """How many marks a plot shows."""
        marks = "path.point, .point > path, .trace.bars .point, .js-line"
        count: int = self.run(f"return document.querySelectorAll('[data-plot={plot}] :is({marks})').length")
        return count

    def png(self, height: int | None = None) -> bytes:
        """A picture of the page, or of the top of it."""
        width, whole = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height or whole, whole), "scale": 1}
        return base64.b64decode(self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"])

    def screenshot(self, name: str) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / f"{name}.png").write_bytes(self.png())


def chromium() -> tuple[str, str] | None:
    """The browser and its driver, where they are installed."""
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def needed_chromium() -> tuple[str, str]:
    """The same; without one a pipeline fails, and whoever runs the tests by hand is told."""
    found = chromium()
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(HOW_TO_GET_IT)
    return found


def chrome_options(browser: str) -> webdriver.ChromeOptions:
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in ("headless=new", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars", "force-color-profile=srgb"):
        options.add_argument(f"--{flag}")
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")  # which root can't have
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return options


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    found = needed_chromium()
    started = webdriver.Chrome(options=chrome_options(found[0]), service=Service(found[1]))
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture(scope="session")
def page(driver: webdriver.Chrome) -> Page:
    return Page(driver)
