"""Keeps what the user's code writes apart from the user's files, in whatever process it runs: redirected as far as
Python, TensorFlow and Keras do the writing, and denied by the kernel beyond that."""

from __future__ import annotations

import os
from pathlib import Path

from oomtune.errors import TrialCrashed
from oomtune.worker.sandbox import landlock as fence
from oomtune.worker.sandbox import overlay

# Where a GPU's driver keeps what it has compiled: without it each trial would compile that anew.
_OF_THE_DRIVER = ".nv"


def keep_writes_in(scratch: Path, *ours: Path) -> None:
    """From here on this process writes into its scratch folder and those that are our own, and nowhere else."""
    overlay.redirect(scratch, *ours)
    home = os.environ.get("HOME")
    fence.keep_writes_in(scratch, *ours, *([Path(home, _OF_THE_DRIVER)] if home else []))


def denied(error: PermissionError, what: str) -> TrialCrashed | None:
    """What to say when the fence is why `what` was not allowed something; None when the file itself is the reason."""
    path = error.filename
    if not isinstance(path, str | bytes) or not _could_be_written(os.fsdecode(path)):
        return None
    return TrialCrashed(
        f"{what} may not write {os.fsdecode(path)} during a trial",
        hint="what Python itself opens is redirected; other code may write only below the temporary folder",
    )


def _could_be_written(path: str) -> bool:
    """Would the file's own permissions allow it? They know nothing of the fence."""
    if os.path.lexists(path):
        return os.access(path, os.R_OK | os.W_OK)
    return os.access(Path(path).absolute().parent, os.W_OK)
