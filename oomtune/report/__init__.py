"""Show what a command found: the model of each result, and one file for each way to show it.

`answer` and `trial_rows` model a probe, `check` a check, `explanation` an explanation; the other files are formats.
"""

COMMENT_MARK = "<!-- written by oomtune -->"
"""Marks Markdown and XML as written by oomtune, so that the next run may overwrite them."""
PAGE_MARK = "oomtune report"
"""Marks an HTML page in the same way: its generator, followed by the version."""
