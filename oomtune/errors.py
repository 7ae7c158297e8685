"""Every error of oomtune, and its exit code.

    OomtuneError                  exit 1: a bug in oomtune, unless it is a subclass
    ├── UsageProblem              exit 2: a flag that makes no sense
    ├── SpecProblem               exit 2: the spec is wrong; holds every problem of the file
    ├── NothingFits               exit 3: not even the smallest configuration fits
    ├── EnvironmentProblem        exit 5: the machine, not the spec
    │   ├── NoSuchDevice          the requested device does not exist on this machine
    │   ├── TensorFlowMissing     TensorFlow can't be imported
    │   ├── BudgetTooLarge        the memory limit exceeds the machine's memory
    │   ├── OutputNotWritable     the answer or the ledger can't be written
    │   ├── SimulatorUnavailable  this machine can't build or load the simulator of cards
    │   └── WorkerBroken          a worker process can't be started or does not answer
    └── TrialCrashed              exit 6: a trial failed for a reason that is not memory
        ├── DataUnreadable        the spec's dataset can't be used
        └── LossNotFinite         the loss is infinite or not a number

Stopping a probe by a limit (exit 7) or by Ctrl-C (exit 130) is no error: such a probe has a result.
"""

from __future__ import annotations

from dataclasses import dataclass

INTERRUPTED = 130


class OomtuneError(Exception):
    """An error that tells the user what happened, where, and what to do next."""

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
    """One thing wrong in a spec: where it is, and what is wrong."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.message}" if self.key else f"{self.where}: {self.message}"


class SpecProblem(OomtuneError):
    """The spec is invalid. Lists all of its problems at once."""

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


class SimulatorUnavailable(EnvironmentProblem):
    code = "simulator_unavailable"


class WorkerBroken(EnvironmentProblem):
    code = "worker_broken"


class TrialCrashed(OomtuneError):
    """A trial failed for a reason other than memory. `traceback` is set if the user's code raised."""

    exit_code = 6
    code = "trial_crashed"

    def __init__(self, message: str, *, hint: str = "", where: str = "", traceback: str = "") -> None:
        super().__init__(message, hint=hint, where=where)
        self.traceback = traceback


class DataUnreadable(TrialCrashed):
    code = "data_unreadable"


class LossNotFinite(TrialCrashed):
    code = "loss_not_finite"
