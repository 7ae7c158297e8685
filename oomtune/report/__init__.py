"""Present results: a view model for each kind of result, and one file for each output format.

`answer` and `trial_rows` model a probe, `check` a check, `explanation` an explanation; the other files are formats.
"""

COMMENT_MARK = "<!-- written by oomtune -->"
"""Marks Markdown and XML as written by oomtune, so that the next run may overwrite them."""
PAGE_MARK = "oomtune report"
"""Marks an HTML page in the same way, in the name of its generator. The version follows."""
