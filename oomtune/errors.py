"""Every way oomtune can end badly, and the exit code each one has.

    OomtuneError                  exit 1: a bug of ours, unless a subclass says more
    ├── UsageProblem              exit 2: a flag that makes no sense
    ├── SpecProblem               exit 2: the spec can't be read; holds every problem of the file
    ├── NothingFits               exit 3: not even the smallest configuration fits
    ├── EnvironmentProblem        exit 5: the machine, not the spec
    │   ├── NoSuchDevice          the device asked for is not here
    │   ├── TensorFlowMissing     TensorFlow can't be imported
    │   ├── BudgetTooLarge        more memory asked for than the machine can hold
    │   ├── OutputNotWritable     the answer or the ledger can't be written
    │   └── WorkerBroken          a worker process can't be started or talked to
    └── TrialCrashed              exit 6: a trial failed for a reason that is not memory
        ├── DataUnreadable        the dataset named by the spec can't be used
        └── LossNotFinite         the loss is infinite or not a number

A probe stopped by a limit (exit 7) or by the user (exit 130) is not an error: it has a result.
"""

from __future__ import annotations

from dataclasses import dataclass

INTERRUPTED = 130


class OomtuneError(Exception):
    """What happened, where, and what to do next."""

    exit_code = 1
    code = "internal"

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageProblem(OomtuneError):
    exit_code = 2
    code = "usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong in a spec: where it is, what it is, what would be accepted."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.message}" if self.key else f"{self.where}: {self.message}"


class SpecProblem(OomtuneError):
    """A spec that can't be read, with all its problems at once."""

    exit_code = 2
    code = "spec"

    def __init__(self, problems: list[Problem], *, hint: str = "") -> None:
        super().__init__("\n".join(map(str, problems)), hint=hint)
        self.problems = problems


class NothingFits(OomtuneError):
    exit_code = 3
    code = "nothing_fits"


class EnvironmentProblem(OomtuneError):
    exit_code = 5
    code = "environment"


class NoSuchDevice(EnvironmentProblem):
    code = "no_such_device"


class TensorFlowMissing(EnvironmentProblem):
    code = "tensorflow_missing"


class BudgetTooLarge(EnvironmentProblem):
    code = "budget_too_large"


class OutputNotWritable(EnvironmentProblem):
    code = "output_not_writable"


class WorkerBroken(EnvironmentProblem):
    code = "worker_broken"


class TrialCrashed(OomtuneError):
    """A trial failed and memory is not why; `traceback` is the user's own code's, if that raised."""

    exit_code = 6
    code = "trial_crashed"

    def __init__(self, message: str, *, hint: str = "", where: str = "", traceback: str = "") -> None:
        super().__init__(message, hint=hint, where=where)
        self.traceback = traceback


class DataUnreadable(TrialCrashed):
    code = "data_unreadable"


class LossNotFinite(TrialCrashed):
    code = "loss_not_finite"
