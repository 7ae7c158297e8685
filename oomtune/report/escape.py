"""Text that stays text, whatever it is put into."""

from __future__ import annotations

import re

# What XML 1.0 can't hold, however it is escaped: control characters, halves of pairs, two that are no characters.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = "\\`*_[]|#~"


def xml_text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def markdown_text(text: str) -> str:
    """On one line, in Markdown and in the HTML that Markdown may hold."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in _MARKDOWN:
        escaped = escaped.replace(sign, f"\\{sign}")
    return " ".join(xml_text(escaped).split())


def markdown_block(text: str, language: str = "") -> list[str]:
    """Lines as they are, between fences that none of them can close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *xml_text(text).rstrip("\n").split("\n"), fence]
