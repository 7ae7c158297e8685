"""The words of the project as types. Frozen, keyword-only, standard library only.

A *candidate* is one point of the search; a *lane* is a candidate without its batch size; a *trial* runs a candidate
in a process of its own; an *outcome* says how that ended; a *record* is a trial with its outcome, as the ledger
keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal


class _Word(str, Enum):
    """A closed set of words that read as themselves in JSON, YAML and messages."""

    def __str__(self) -> str:
        return str(self.value)


class Purpose(_Word):
    CALIBRATE = "calibrate"
    SEARCH = "search"
    CONFIRM = "confirm"


class Kind(_Word):
    FITS = "fits"
    DEVICE_OOM = "device_oom"
    HOST_OOM = "host_oom"
    TIMEOUT = "timeout"
    CRASH = "crash"


class Stage(_Word):
    BUILD = "build"
    DATA = "data"
    WARMUP = "warmup"
    TRAIN = "train"
    VALIDATE = "validate"
    DONE = "done"


class Objective(_Word):
    TOKENS = "tokens"
    BATCH_SIZE = "batch_size"
    SEQUENCE_LENGTH = "sequence_length"
    THROUGHPUT = "throughput"


class Verdict(_Word):
    TUNED = "tuned"
    STOPPED = "stopped"
    NOTHING_FITS = "nothing_fits"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    sequence_length: int | None
    precision: str
    remat: str = "none"

    def at(self, batch_size: int) -> Candidate:
        return Candidate(
            batch_size=batch_size, sequence_length=self.sequence_length, precision=self.precision, remat=self.remat
        )

    def __str__(self) -> str:
        length = f"sequence {self.sequence_length}, " if self.sequence_length is not None else ""
        return f"{length}{self.precision}" + (f", remat {self.remat}" if self.remat != "none" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    batch_size: int
    sequence_length: int | None = None
    precision: str = "float32"
    remat: str = "none"

    @property
    def lane(self) -> Lane:
        return Lane(sequence_length=self.sequence_length, precision=self.precision, remat=self.remat)

    @property
    def tokens(self) -> int:
        """Batch size times sequence length; samples when there is no sequence axis."""
        return self.batch_size * (self.sequence_length or 1)

    def __str__(self) -> str:
        return f"batch {self.batch_size}, {self.lane}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """What may be tried, and what counts as better. Axes ascend; precisions are most preferred first."""

    batch_sizes: Sequence[int]
    sequence_lengths: tuple[int, ...] | None = None
    precisions: tuple[str, ...] = ("float32",)
    remats: tuple[str, ...] = ("none",)
    objective: Objective = Objective.TOKENS
    resolution: float = 0.02
    every_lane: bool = False

    def lanes(self) -> list[Lane]:
        """Every lane, most preferred first: the longest sequence, then the precision listed first."""
        lengths: Sequence[int | None] = (None,) if self.sequence_lengths is None else self.sequence_lengths[::-1]
        return [
            Lane(sequence_length=length, precision=precision, remat=remat)
            for length in lengths
            for precision in self.precisions
            for remat in self.remats
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`limit_bytes` is what the device gives; `budget_bytes` is what a configuration may use of it at its peak."""

    limit_bytes: int
    headroom: float = 0.05

    @property
    def budget_bytes(self) -> int:
        return math.floor(self.limit_bytes * (1 - self.headroom))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """A Keras object by name, as Keras itself serialises one."""

    class_name: str
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    layers: tuple[ClassConfig, ...] = ()
    builder: str | None = None
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor of a sample; the word `sequence_length` in the shape stands for the value under trial."""

    shape: tuple[int | Literal["sequence_length"], ...]
    dtype: str
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticData:
    inputs: TensorSpec
    targets: TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzData:
    path: str
    inputs: str
    targets: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """Exactly one of its entries is set."""

    synthetic: SyntheticData | None = None
    npz: NpzData | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    optimizer: str | ClassConfig = "adam"
    loss: str | ClassConfig | None = None
    metrics: tuple[str | ClassConfig, ...] = ()
    jit_compile: bool | None = None
    """None is Keras' own choice on the device being probed."""
    effective_batch_size: int | None = None
    validation_batch_size: int | None = None
    """None is the batch size under trial; 0 is no validation."""
    run_eagerly: bool = False

    def accumulation_steps(self, batch_size: int) -> int:
        """How many batches of this size make up at least the effective batch size."""
        if self.effective_batch_size is None:
            return 1
        return math.ceil(self.effective_batch_size / batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    warmup_steps: int = 1
    steps: int = 3
    confirm_steps: int = 20
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """What the spec and flags ask of the device. A limit of None is `auto`."""

    kind: Literal["auto", "gpu", "cpu"] = "auto"
    memory_limit_bytes: int | None = None
    like: str | None = None
    headroom: float = 0.05
    allocator: Literal["default", "cuda_malloc_async"] = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device a probe runs on, as found. `stands_in_for` is a card of the catalogue whose budget the CPU has."""

    kind: Literal["gpu", "cpu"]
    name: str
    index: int = 0
    allocator: Literal["default", "cuda_malloc_async"] = "default"
    stands_in_for: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec:
    name: str
    folder: str
    """Where the spec lives: paths and builders are found from here."""
    model: ModelSpec
    dataset: DatasetSpec
    training: TrainingSpec
    space: SearchSpace
    device: DeviceRequest
    trial: TrialSettings


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
    scratch: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A candidate that ran and fitted, with what was seen when it did."""

    candidate: Candidate
    peak_bytes: int
    step_ms: float | None
    confirmed_by: TrialRecord | None = None

    @property
    def samples_per_second(self) -> float | None:
        return self.candidate.batch_size * 1000 / self.step_ms if self.step_ms else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """The largest batch known to fit in a lane; `run` to the edge, or only `partly`."""

    lane: Lane
    batch_size: int
    certainty: Literal["run", "partly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe found, with every trial it stands on."""

    verdict: Verdict
    spec: ProbeSpec
    device: Device
    budget: Budget
    records: tuple[TrialRecord, ...]
    best: Fit | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    next_larger: tuple[Candidate, Kind] | None = None
    """The smallest larger batch in the winner's lane that was tried, and how it ended."""
    problem: TrialError | None = None
    """Why there is no confirmed answer, when there is none."""
    new_trials: int = 0
    environment: dict[str, Any] = field(default_factory=dict)
    tuned_path: str | None = None
    ledger_path: str | None = None
    notices: tuple[str, ...] = ()
