"""What `oomtune check` does: run one configuration to its end and compare it with the evidence."""

from oomtune.commands.check.run import check, run_check
from oomtune.commands.check.subject import CheckOptions

__all__ = ["CheckOptions", "check", "run_check"]
