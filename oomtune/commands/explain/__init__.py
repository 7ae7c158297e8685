"""What `oomtune explain` does: show where the memory goes and measure what each remedy saves, in about 25 trials."""

from oomtune.commands.explain.bench import ExplainObserver, SilentExplainObserver
from oomtune.commands.explain.run import ExplainOptions, run_explain

__all__ = ["ExplainObserver", "ExplainOptions", "SilentExplainObserver", "run_explain"]
