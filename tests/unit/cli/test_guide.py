"""`oomtune guide`: the manual in the terminal, in a pipe and as JSON."""

from __future__ import annotations

import re

import pytest

from oomtune.cli.guide import PAGES, TOPICS
from tests.support.cli import Cli
from tests.support.terminal import on_a_terminal


def test_without_a_topic_it_lists_all_of_them(cli: Cli) -> None:
    listed = cli("guide")
    assert (listed.code, listed.err) == (0, "")
    for topic in TOPICS:
        assert re.search(rf"^ {topic} +\S.*\.\s*$", listed.out, flags=re.MULTILINE)
    assert cli("guide", "-q").out.split() == list(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_in_a_pipe_a_page_is_plain_markdown(topic: str, cli: Cli) -> None:
    assert cli("guide", topic).out == (PAGES / f"{topic}.md").read_text()


@pytest.mark.parametrize("topic", ["search", "spec", "benchmarks"])
def test_on_a_terminal_a_page_is_rendered_and_links_name_a_command(topic: str, cli: Cli) -> None:
    code, drawn = on_a_terminal(cli, "guide", topic)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert code == 0
    assert "\x1b[" in drawn
    for markdown in ("```", "](", "**", "|--", "## ", "!["):
        assert markdown not in plain
    assert "oomtune guide" in plain or "configs/" in plain


def test_on_a_terminal_without_colour_there_is_none(cli: Cli) -> None:
    _, drawn = on_a_terminal(cli, "guide", "ci", "--no-color")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", drawn)


def test_as_json_it_is_one_document(cli: Cli) -> None:
    listed = cli("guide", "--json").document
    assert [each["topic"] for each in listed["topics"]] == list(TOPICS)
    assert (listed["command"], listed["verdict"], listed["error"]) == ("guide", "listed", None)
    shown = cli("guide", "ci", "--json").document
    assert (shown["topic"], shown["verdict"]) == ("ci", "shown")
    assert shown["text"] == (PAGES / "ci.md").read_text()


def test_an_unknown_topic_is_bad_usage_and_names_the_nearest(cli: Cli) -> None:
    ran = cli("guide", "serach")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean search?" in ran.err
    error = cli("guide", "buckets", "--json").document["error"]
    assert error["code"] == "usage"
    assert all(topic in error["hint"] for topic in TOPICS)


def test_verbose_names_the_file(cli: Cli) -> None:
    assert cli("guide", "ci", "-v").err == f"{PAGES / 'ci.md'}\n"
