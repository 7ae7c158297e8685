"""A whole check: run a configuration once, as an answer is confirmed, and hold it against what was seen before."""

from oomtune.checking.command import check, run_check
from oomtune.checking.options import CheckOptions

__all__ = ["CheckOptions", "check", "run_check"]
