"""Trials: the order to the worker, the worker's reply, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from oomtune.domain.anatomy import Anatomy
from oomtune.domain.data import DatasetSpec, Scan, TensorSpec
from oomtune.domain.search import Budget, Candidate, Kind, Lane, Purpose, Stage, Word
from oomtune.domain.spec import Device, ModelSpec, ModelVariant, TrainingSpec, TrialSettings


class Aim(Word):
    """The aim of a trial. Only trials that aim at the answer decide it."""

    ANSWER = "answer"
    BUCKETS = "buckets"
    TIMING = "timing"
    """Measure how much time rematerialisation costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """Run growing batch sizes of one lane in one process, to see how memory grows."""

    purpose: Literal[Purpose.CALIBRATE] = Purpose.CALIBRATE
    lane: Lane
    sizes: tuple[int, ...]
    """The batch sizes to choose from, ascending; the first always runs."""
    every_size: bool = False
    """Run every size below the budget instead of an informative selection."""
    aim: Aim = Aim.ANSWER

    @property
    def candidate(self) -> Candidate:
        """The first candidate of the climb."""
        return self.lane.at(self.sizes[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Run one candidate for a few steps."""

    purpose: Literal[Purpose.SEARCH] = Purpose.SEARCH
    candidate: Candidate
    further: tuple[int, ...] = ()
    """Larger batch sizes to run afterwards in the same process, up to the first that does not fit."""
    further_within_s: float | None = None
    """Start no further size after this time. Set when the candidate may be far below the edge; each size then covers
    half of the remaining distance."""
    shows_anatomy: bool = False
    """Also measure what memory holds at the peak, which makes steps slower."""
    aim: Aim = Aim.ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """Run one candidate for the steps that confirm an answer. `further` means the same as in `Search`."""

    purpose: Literal[Purpose.CONFIRM] = Purpose.CONFIRM
    candidate: Candidate
    further: tuple[int, ...] = ()
    further_within_s: float | None = None
    aim: Aim = Aim.ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTurns:
    """Train on batches of several lengths in turns. `buckets` are pairs of a length and a batch size, shortest first.
    With the purpose `confirm`, the trial runs for the steps that confirm an answer."""

    purpose: Literal[Purpose.SEARCH, Purpose.CONFIRM]
    lane: Lane
    buckets: tuple[tuple[int, int], ...]

    @property
    def candidate(self) -> Candidate:
        """The bucket of the longest samples."""
        return self.lane.at(self.buckets[-1][1])

    @property
    def aim(self) -> Literal[Aim.BUCKETS]:
        return Aim.BUCKETS


LaneTrial: TypeAlias = Climb | Search | Confirm
"""A trial of one lane."""
Trial: TypeAlias = LaneTrial | BucketTurns
"""The work of one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """Everything that a worker process needs to run a trial."""

    trial: Trial
    folder: str
    model: ModelSpec
    variant: ModelVariant = ModelVariant.AS_WRITTEN
    dataset: DatasetSpec | None
    training: TrainingSpec
    settings: TrialSettings
    device: Device
    budget: Budget
    scan: Scan | None = None
    scratch: str = ""
    """A folder for this trial only, removed afterwards. The worker sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOrder:
    """Have the worker read the data once, and write the worst samples to `rows_path`."""

    dataset: DatasetSpec
    folder: str
    rows_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOrder:
    """Have the worker build the model and describe it."""

    model: ModelSpec
    folder: str
    sequence_length: int | None = None
    """The length for a builder that takes one. A dimension of this size then counts as the sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The inputs, outputs and losses of a built model. The word `sequence_length` stands for an axis that varies."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    activations: dict[str, str]
    """The activation of the layer behind each output."""
    compiled: bool
    losses: dict[str, str] = field(default_factory=dict)
    """The compiled loss of each output, in lower case without underscores."""
    lengths: tuple[int, ...] = ()
    """Sequence lengths that the model accepted, if its length may vary."""
    batch_size: int | None = None
    """The only batch size that the model accepts, if there is only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One of several sizes that ran in one process."""

    batch_size: int
    peak_bytes: int
    step_ms: float


FailureKind: TypeAlias = Literal[Kind.DEVICE_OOM, Kind.HOST_OOM, Kind.TIMEOUT, Kind.CRASH]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSize:
    """A size that did not fit after smaller ones had fitted in the same process. `peak_bytes` is set if it ran."""

    batch_size: int
    kind: FailureKind
    peak_bytes: int | None = None

    @property
    def over_headroom(self) -> bool:
        """Whether every step ran, with a peak above the budget."""
        return self.peak_bytes is not None


FRAGMENTATION = "fragmentation"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialError:
    """Why a trial failed, in words for the user."""

    code: str
    message: str
    hint: str = ""
    where: str = ""
    traceback: str = ""

    @property
    def is_fragmentation(self) -> bool:
        return self.code == FRAGMENTATION


FindingKind = Literal["leak", "retrace", "kept_tensors", "checkpoint", "remat", "batch_size", "fits", "loss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An observation that is harmless in a short run but may matter in a long one, or a setting without effect here."""

    kind: FindingKind
    message: str
    where: str = ""
    """The line to change, as file:line; empty if unknown."""
    hint: str = ""
    bytes_per_step: int | None = None
    """The memory that the cause of the finding adds at each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorState:
    """The device's allocator at the moment when it ran out of room."""

    allocator: str
    limit_bytes: int
    in_use_bytes: int
    largest_free_bytes: int
    """The largest free piece."""
    largest_held_bytes: int
    """The largest tensor in use."""
    fragmentation: float
    """TensorFlow's own measure: the share of the free memory outside the largest free piece."""
    requested_bytes: int | None = None
    """The size of the request; unknown if the trial ended before the allocator named it."""

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.in_use_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedError:
    """An exception from the worker, in a form that can cross the pipe. `bases` are the names of its base classes."""

    type_name: str
    bases: tuple[str, ...]
    message: str
    traceback: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The worker's report about the steps it ran. `error` is None only if every step ran."""

    stage: Stage
    peak_bytes: int | None = None
    step_ms: tuple[float, ...] = ()
    memory_after_step_bytes: tuple[int, ...] = ()
    points: tuple[Point, ...] = ()
    batch_size: int | None = None
    """The size that was running when the worker replied; a climb has several."""
    jit_compile: bool | None = None
    parameters: int | None = None
    validated: bool = False
    anatomy: Anatomy | None = None
    findings: tuple[Finding, ...] = ()
    allocator: AllocatorState | None = None
    error: RaisedError | None = None
    further: tuple[Point, ...] = ()
    """The sizes that ran after the candidate. Everything above belongs to the candidate."""
    further_at: int | None = None
    """The further size that was running when the worker replied."""
    further_error: RaisedError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measurements:
    """The measurements that every outcome has, however the trial ended."""

    step_ms: float | None = None
    """The median of the steps after warm-up."""
    steps_run: int = 0
    leak_bytes_per_step: int = 0
    findings: tuple[Finding, ...] = ()
    jit_compile: bool | None = None
    parameters: int | None = None
    validated: bool = False
    duration_s: float = 0.0


class _WithinBudget:
    __slots__ = ()

    @property
    def stage(self) -> Literal[Stage.DONE]:
        return Stage.DONE

    @property
    def error(self) -> None:
        return None

    @property
    def over_headroom(self) -> Literal[False]:
        return False


class _WithoutFurther:
    __slots__ = ()

    @property
    def further(self) -> tuple[Point, ...]:
        return ()

    @property
    def further_failed(self) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(_Measurements, _WithinBudget):
    """Every step of the candidate ran, and the peak stayed within the budget."""

    kind: Literal[Kind.FITS] = Kind.FITS
    peak_bytes: int
    anatomy: Anatomy | None = None
    """The contents of memory at the peak, if the trial measured them."""
    further: tuple[Point, ...] = ()
    """The larger sizes that ran next in the same process and fitted."""
    further_failed: FailedSize | None = None
    """The first larger size that did not fit."""

    @property
    def points(self) -> tuple[Point, ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed(_Measurements, _WithinBudget, _WithoutFurther):
    """A climb ended with every size within the budget."""

    kind: Literal[Kind.FITS] = Kind.FITS
    peak_bytes: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_Measurements, _WithoutFurther):
    """The candidate did not fit, or a climb ended at a size that did not fit."""

    kind: FailureKind
    stage: Stage
    error: TrialError
    batch_size: int
    """The size that did not fit."""
    peak_bytes: int | None = None
    points: tuple[Point, ...] = ()
    """The sizes of a climb that fitted before the failure."""
    allocator: AllocatorState | None = None
    """The state of the allocator when it ran out of room, if known."""

    @property
    def over_headroom(self) -> bool:
        """Whether every step ran, with a peak above the budget. The peak is then known."""
        return self.kind is Kind.DEVICE_OOM and self.stage is Stage.DONE


Outcome: TypeAlias = Fitted | Climbed | Failed
"""How a trial ended. All outcomes share the same properties, so most readers need not tell them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    number: int
    trial: Trial
    outcome: Outcome

    @property
    def buckets(self) -> tuple[tuple[int, int], ...]:
        """The buckets that took turns; empty for a trial of one lane."""
        return self.trial.buckets if isinstance(self.trial, BucketTurns) else ()

    @property
    def ended_at(self) -> Candidate:
        """The candidate that decided the outcome. A failed climb ends at a larger size than its first."""
        candidate = self.trial.candidate
        return candidate.lane.at(self.outcome.batch_size) if isinstance(self.outcome, Failed) else candidate

    @property
    def refuses_precision(self) -> bool:
        """Whether the loss was not finite in half precision. In float32, precision is not the cause."""
        error = self.outcome.error
        return error is not None and error.code == "loss_not_finite" and self.trial.candidate.lane.is_half
