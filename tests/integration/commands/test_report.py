"""A real probe in every report format, from its command and from its ledger."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from tests.support.cli import Cli

FILES = ("--report", "out.html", "--summary", "out.md", "--junit", "out.xml", "--csv", "out.csv")


def test_a_probe_looks_the_same_from_its_command_and_from_its_ledger(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file()
    ran = cli("probe", spec, *FILES, "--tensorboard", "logs", "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    batch = document["best"]["batch_size"]
    assert f'<p class="value">{batch}</p>' in (cli.folder / "out.html").read_text()
    assert f"| batch size | {batch} |" in (cli.folder / "out.md").read_text()
    assert ElementTree.parse(cli.folder / "out.xml").getroot().attrib["failures"] == "0"
    with (cli.folder / "out.csv").open() as file:
        peaks = {row["peak_bytes"] for row in csv.DictReader(file)}
    assert str(document["memory"]["peak_bytes"]) in peaks
    assert list((cli.folder / "logs").rglob("events.out.tfevents.*"))
    again = cli("report", spec, "-o", "again.html", "-o", "again.md", "--json")
    assert again.code == 0, again.err
    assert again.document["command"] == "report"
    told = {**again.document, "command": "probe", "tuned_path": document["tuned_path"]}
    assert told.pop("probe_exit_code") == 0
    assert told == document
    for first, second in (("out.html", "again.html"), ("out.md", "again.md")):
        # What differs is how the tuned config's path was given: to the one from here, to the other whole.
        before = (cli.folder / first).read_text().replace(document["tuned_path"], "TUNED")
        assert before == (cli.folder / second).read_text().replace(again.document["tuned_path"], "TUNED")


def test_a_file_of_the_user_stops_a_probe_before_it_begins(cli: Cli, spec_file: Callable[..., Path]) -> None:
    (cli.folder / "mine.html").write_text("<p>mine</p>")
    ran = cli("probe", spec_file(), "--report", "mine.html")
    assert ran.code == 2
    assert "was not changed" in ran.err
    assert (cli.folder / "mine.html").read_text() == "<p>mine</p>"
    assert cli.ledgers() == []
