"""Take the README's picture of a report: `python -m tests.browser.picture LEDGER OUT.png`."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from oomtune.commands.report import from_ledger
from oomtune.report.html import probe_page
from oomtune.storage.ledger_index import find_ledger
from tests.browser.conftest import Page, chrome_options, require_chromium

_WIDTH, _HEIGHT = 1240, 900


def main(word: str, target: str) -> None:
    finished = from_ledger(find_ledger(word, Path.cwd()))
    browser, chromedriver = require_chromium()
    driver = webdriver.Chrome(options=chrome_options(browser), service=Service(chromedriver))
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.html"
            path.write_text(probe_page(finished.result, tuned_text=finished.tuned_text), encoding="utf-8")
            page = Page(driver)
            page.open(path, width=_WIDTH)
            picture = Image.open(io.BytesIO(page.png(height=_HEIGHT)))
    finally:
        driver.quit()
    picture.convert("RGB").save(target, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
