"""The words of users, in every form of a report: they stay text."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from oomtune.report.escape import markdown_block, markdown_text, xml_text
from oomtune.report.html import html_page
from oomtune.report.junit import junit_page
from oomtune.report.markdown import markdown_page
from oomtune.report.table import csv_page
from oomtune.report.tensorboard import write_events
from tests.support.finished import FailingDevice, finished, probe_spec
from tests.unit.report.test_report import payload

BAD = "<script>alert(1)</script> | `x` \x00\x1b & ]]>"


def test_the_words_of_users_stay_text_in_every_form(tmp_path: Path) -> None:
    spec = dataclasses.replace(probe_spec(), name=BAD)
    failed = finished(spec, device_class=FailingDevice)
    page = html_page(failed, tuned_text=BAD)
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # plotly's own and ours
    assert "<script>alert" not in outside
    assert "&lt;script&gt;alert" in outside
    assert payload(page)["figures"]
    text = markdown_page(failed, tuned_text=BAD)
    assert "<script>" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    suite = ElementTree.fromstring(junit_page(failed))
    assert "�" in next(suite.iter("testcase")).attrib["name"]
    write_events(failed, tmp_path)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", path.name) for path in tmp_path.rglob("*"))


@given(st.text())
@settings(max_examples=200)
def test_any_text_can_be_put_anywhere(text: str) -> None:
    ElementTree.fromstring(f"<a>{ElementTree.tostring(_element(text), encoding='unicode')}</a>")
    assert "<" not in markdown_text(text)
    assert "\n" not in markdown_text(text)
    fence, *_, end = markdown_block(text)
    assert fence == end
    assert all(not line.strip().startswith(fence) for line in xml_text(text).splitlines())


def _element(text: str) -> ElementTree.Element:
    element = ElementTree.Element("b", {"c": xml_text(text)})
    element.text = xml_text(text)
    return element


def test_a_formula_in_an_error_is_no_formula_in_a_table() -> None:
    broken = finished(probe_spec(), device_class=FailingDevice)
    last = broken.records[-1]
    error = dataclasses.replace(FailingDevice.error, message="=HYPERLINK(1)")
    record = dataclasses.replace(last, outcome=dataclasses.replace(last.outcome, error=error))
    shown = csv_page(dataclasses.replace(broken, records=(*broken.records[:-1], record)))
    assert list(csv.DictReader(io.StringIO(shown)))[-1]["error"] == "'=HYPERLINK(1)"
