"""One trial: what goes to the worker, what comes back, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from oomtune.domain.anatomy import Anatomy
from oomtune.domain.data import DatasetSpec, Scan, TensorSpec
from oomtune.domain.finding import AllocatorState, Finding
from oomtune.domain.search import Budget, Candidate, Kind, Purpose, Stage, Word
from oomtune.domain.spec import Device, ModelSpec, ModelVariant, TrainingSpec, TrialSettings


class Aim(Word):
    """What a trial is run for. Only trials for the answer decide it."""

    ANSWER = "answer"
    BUCKETS = "buckets"
    TIMING = "timing"
    """What rematerialisation costs in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One process to run. A calibrating trial climbs through `climb`, which begins with the candidate's batch size.
    One with `buckets`, pairs of a length and a batch size, trains on all of these by turns."""

    purpose: Purpose
    candidate: Candidate
    climb: tuple[int, ...] = ()
    buckets: tuple[tuple[int, int], ...] = ()
    for_buckets: bool = False
    """Is it run for the sake of buckets? Then the answer does not depend on it."""
    for_time: bool = False
    """Is it run to see what rematerialisation costs in time? Nor does it then."""
    every_size: bool = False
    """Is no size of the climb to be left out?"""
    dissected: bool = False
    """Is it to be told what memory holds at the peak? Steps take longer then."""
    further: tuple[int, ...] = ()
    """Larger sizes to go on to in the same process once the candidate has fitted, up to the first that does not."""
    afar_s: float | None = None
    """Set where the candidate may be far below the edge: for how long to begin another of the `further` sizes. They
    come near the edge by halves then."""

    @property
    def for_the_answer(self) -> bool:
        return not (self.for_buckets or self.for_time)

    @property
    def aim(self) -> Aim:
        if self.for_buckets:
            return Aim.BUCKETS
        return Aim.TIMING if self.for_time else Aim.ANSWER


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """All that a worker process needs to know, and all that it is told."""

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
    """A folder of the trial's own, for the allocator's dumps; removed when the trial has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOrder:
    """Read the data once; the worst samples go to `rows_path`."""

    dataset: DatasetSpec
    folder: str
    rows_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOrder:
    """Build the model and say what can be seen of it."""

    model: ModelSpec
    folder: str
    sequence_length: int | None = None
    """Given to a builder that takes it; a dimension of this size is then taken to be the length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a built model shows. The word `sequence_length` stands where its length may vary."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    activations: dict[str, str]
    """The activation of the layer behind each output."""
    compiled: bool
    losses: dict[str, str] = field(default_factory=dict)
    """The loss that each output comes compiled with, in lower case and without underscores."""
    lengths: tuple[int, ...] = ()
    """The lengths that it was seen to take, where that may vary."""
    batch_size: int | None = None
    """The only batch size that it takes, if there is but one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One size that a calibrating trial ran."""

    batch_size: int
    peak_bytes: int
    step_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSize:
    """A size that did not fit, after smaller ones that did in the same process. `peak_bytes` is known if it ran."""

    batch_size: int
    kind: Kind
    peak_bytes: int | None = None

    @property
    def over_headroom(self) -> bool:
        """Whether every step ran, with a peak above the budget."""
        return self.peak_bytes is not None


FRAGMENTATION = "fragmentation"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialError:
    """Why a trial did not fit, in words for the user."""

    code: str
    message: str
    hint: str = ""
    where: str = ""
    traceback: str = ""

    @property
    def is_fragmentation(self) -> bool:
        return self.code == FRAGMENTATION


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
    parameters: int | None = None
    validated: bool = False
    anatomy: Anatomy | None = None
    findings: tuple[Finding, ...] = ()
    allocator: AllocatorState | None = None
    error: RaisedError | None = None
    further: tuple[Point, ...] = ()
    """The sizes run after the candidate, to which all else belongs."""
    further_at: int | None = None
    """The one of them being run when the reply was made."""
    further_error: RaisedError | None = None


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
    findings: tuple[Finding, ...] = ()
    allocator: AllocatorState | None = None
    """Its state when it found no room, where that is known."""
    jit_compile: bool | None = None
    parameters: int | None = None
    validated: bool = False
    anatomy: Anatomy | None = None
    """What memory held at the peak, when that was asked."""
    duration_s: float = 0.0
    error: TrialError | None = None
    further: tuple[Point, ...] = ()
    """The larger sizes that fitted after it in the same process."""
    further_failed: FailedSize | None = None
    """The first larger one that did not."""

    @property
    def over_headroom(self) -> bool:
        """Did it run, with a peak over the budget? That is no out-of-memory error, and its peak is known."""
        return self.kind is Kind.DEVICE_OOM and self.stage is Stage.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    number: int
    trial: Trial
    outcome: Outcome

    @property
    def ended_at(self) -> Candidate:
        """The candidate that its ending is of: a climb ends at another size than it began with."""
        candidate = self.trial.candidate
        return candidate.lane.at(self.outcome.failed_batch_size or candidate.batch_size)

    @property
    def refuses_precision(self) -> bool:
        """Did the loss not stay a number in half precision? Under float32 that is no matter of precision."""
        error = self.outcome.error
        return error is not None and error.code == "loss_not_finite" and self.trial.candidate.lane.half
