"""A real headless Chromium, started once. Without one, tests fail in CI and skip elsewhere, and say how to get it."""

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
        self.console()  # drop the messages of earlier pages
        self.emulate(scheme, width)
        self.driver.get(path.as_uri())
        self.wait("return document.documentElement.dataset.drawn === 'yes'")  # plots are drawn after the page loads

    def cdp(self, verb: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.driver.execute_cdp_cmd(verb, arguments)
        return answer

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> None:
        """Wait until the script returns something true."""
        WebDriverWait(self.driver, 10, poll_frequency=0.05).until(lambda driver: driver.execute_script(script))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        WebDriverWait(self.driver, 10, poll_frequency=0.05).until(lambda _: condition())

    def console(self) -> list[str]:
        """Return new console messages: errors, warnings, and what the page's policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def emulate(self, scheme: str, width: int) -> None:
        """Emulate a colour scheme and a window width."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)

    def drawn(self, plot: str) -> int:
        """Return how many marks a plot shows."""
        marks = "path.point, .point > path, .trace.bars .point, .js-line"
        count: int = self.run(f"return document.querySelectorAll('[data-plot={plot}] :is({marks})').length")
        return count

    def png(self, height: int | None = None) -> bytes:
        """Return a picture of the page, or of its top."""
        width, whole = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height or whole, whole), "scale": 1}
        return base64.b64decode(self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"])

    def screenshot(self, name: str) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / f"{name}.png").write_bytes(self.png())


def chromium() -> tuple[str, str] | None:
    """Return the browser and its driver, if they are installed."""
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def require_chromium() -> tuple[str, str]:
    """Return the browser and its driver. Without them, fail in CI and skip elsewhere."""
    installed = chromium()
    if installed is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(HOW_TO_GET_IT)
    return installed


def chrome_options(browser: str) -> webdriver.ChromeOptions:
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in ("headless=new", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars", "force-color-profile=srgb"):
        options.add_argument(f"--{flag}")
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")  # root can't have the sandbox
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return options


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    browser, chromedriver = require_chromium()
    driver = webdriver.Chrome(options=chrome_options(browser), service=Service(chromedriver))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def page(driver: webdriver.Chrome) -> Page:
    return Page(driver)
