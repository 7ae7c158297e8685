"""What tells that a file was written by oomtune, and may be written over."""

from __future__ import annotations

COMMENT = "<!-- written by oomtune -->"
"""In Markdown and in XML."""
GENERATOR = "oomtune report"
"""In a page's head, before the version."""
