"""Where the memory goes and what each remedy would save, measured in two dozen short trials."""

from oomtune.commands.explain.bench import ExplainObserver, SilentExplainObserver
from oomtune.commands.explain.command import ExplainOptions, run_explain

__all__ = ["ExplainObserver", "ExplainOptions", "SilentExplainObserver", "run_explain"]
