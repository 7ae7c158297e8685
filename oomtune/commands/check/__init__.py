"""A whole check: run a configuration once, as an answer is confirmed, and hold it against what was seen before."""

from oomtune.commands.check.command import check, run_check
from oomtune.commands.check.options import CheckOptions

__all__ = ["CheckOptions", "check", "run_check"]
