"""`oomtune guide [TOPIC]`: the manual, rendered in the terminal."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from oomtune.cli import options
from oomtune.cli.streams import facts_table, print_document, stdout_console
from oomtune.errors import UsageProblem

PAGES = Path(__file__).parents[1] / "guide"
TOPICS = (
    "spec", "models", "data", "search", "scripts", "remedies", "ci", "reports", "how-it-works", "benchmarks", "limits",
    "trust",
)  # fmt: skip
_READABLE_COLUMNS = 100


def complete_topics(incomplete: str) -> list[str]:
    return options.matching(incomplete, TOPICS)


Topic = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="The page to read; lists the topics if omitted.",
        show_default=False,
        autocompletion=complete_topics,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="List only the names of the topics.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also print the path of the pages, on stderr.")]


def command(
    topic: Topic = None,
    as_json: options.Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Read the manual: list its topics, or show one page.

    The pages are Markdown files. On a terminal they are rendered; in a pipe they are printed as they are.

    \b
    Examples:
      oomtune guide
      oomtune guide search
      oomtune guide ci > ci.md

    Exit codes: 0 shown, 2 no such topic.
    """
    if verbose:
        print(PAGES if topic is None else _path(topic), file=sys.stderr)
    if topic is None:
        _list_topics(as_json=as_json, quiet=quiet, no_color=no_color)
    else:
        _show_page(topic, as_json=as_json, no_color=no_color)
    return 0


def _list_topics(*, as_json: bool, quiet: bool, no_color: bool) -> None:
    if as_json:
        topics = [{"topic": topic, "summary": _summary(topic)} for topic in TOPICS]
        print_document("guide", "listed", topics=topics)
    elif quiet:
        print(*TOPICS, sep="\n")
    else:
        console = stdout_console(no_color=no_color)
        console.print(facts_table((topic, _summary(topic)) for topic in TOPICS))
        console.print("\nRead one with: oomtune guide TOPIC")


def _show_page(topic: str, *, as_json: bool, no_color: bool) -> None:
    text = _path(topic).read_text(encoding="utf-8")
    if as_json:
        print_document("guide", "shown", topic=topic, text=text)
        return
    console = stdout_console(no_color=no_color)
    if not console.is_terminal:
        print(text, end="")
        return
    from rich.markdown import Markdown
    from rich.theme import Theme

    page = Markdown(_for_a_terminal(text), code_theme="ansi_dark", hyperlinks=False)
    with console.use_theme(Theme({"markdown.code": "cyan"})):  # rich's own has a black background
        console.print(page, width=min(console.width, _READABLE_COLUMNS))


def _path(topic: str) -> Path:
    if topic not in TOPICS:
        near = difflib.get_close_matches(topic, TOPICS, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageProblem(f"the guide has no topic {topic!r}{meant}", hint=f"topics: {', '.join(TOPICS)}")
    return PAGES / f"{topic}.md"


def _summary(topic: str) -> str:
    """Return the page's first paragraph, which is one line."""
    return _path(topic).read_text(encoding="utf-8").split("\n\n")[1]


def _for_a_terminal(text: str) -> str:
    """Drop the pictures, and name the command or file that each relative link leads to."""
    text = re.sub(r"!\[[^]]*\]\([^)]*\)\n+", "", text)
    return re.sub(r"\[([^]]+)\]\(([^):]+)\)", _without_link, text)


def _without_link(link: re.Match[str]) -> str:
    text, path = link[1], Path(link[2])
    is_page = path.parent == Path()
    name, target = (path.stem, f"oomtune guide {path.stem}") if is_page else (path.name, link[2].replace("../", ""))
    return f"`{target}`" if text == name else f"{text} (`{target}`)"
