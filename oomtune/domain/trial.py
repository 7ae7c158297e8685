"""One trial: what goes to the worker, what comes back, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain.data import DatasetSpec
from oomtune.domain.search import Budget, Candidate, Kind, Purpose, Stage
from oomtune.domain.spec import Device, ModelSpec, TrainingSpec, TrialSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One process to run. A calibrating trial climbs through `climb`, which begins with the candidate's batch size."""

    purpose: Purpose
    candidate: Candidate
    climb: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """All that a worker process needs to know, and all that it is told."""

    trial: Trial
    folder: str
    model: ModelSpec
    dataset: DatasetSpec
    training: TrainingSpec
    settings: TrialSettings
    device: Device
    budget: Budget
    scratch: str = ""
    """A folder of the trial's own, for the allocator's dumps; removed when the trial has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One size that a calibrating trial ran."""

    batch_size: int
    peak_bytes: int
    step_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialError:
    """Why a trial did not fit, in words for the user."""

    code: str
    message: str
    hint: str = ""
    where: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedError:
    """An exception as it crosses the pipe: its type and the names of all its bases, so that no text decides."""

    type_name: str
    bases: tuple[str, ...]
    message: str
    traceback: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a worker says of the steps it ran. `error` is None only when every step ran."""

    stage: Stage
    peak_bytes: int | None = None
    step_ms: tuple[float, ...] = ()
    memory_after_step_bytes: tuple[int, ...] = ()
    points: tuple[Point, ...] = ()
    batch_size: int | None = None
    """The size being run when the reply was made; a calibrating trial has several."""
    jit_compile: bool | None = None
    validated: bool = False
    error: RaisedError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a trial ended. `fits` means that every step ran and the peak stayed within the budget."""

    kind: Kind
    stage: Stage
    peak_bytes: int | None = None
    step_ms: float | None = None
    """The median of the steps after warm-up."""
    steps_run: int = 0
    points: tuple[Point, ...] = ()
    failed_batch_size: int | None = None
    """The size at which it ended, when that was not a fit."""
    leak_bytes_per_step: int = 0
    jit_compile: bool | None = None
    validated: bool = False
    duration_s: float = 0.0
    error: TrialError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    number: int
    trial: Trial
    outcome: Outcome
