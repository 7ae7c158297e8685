"""Runs: the sizes that trials executed, one by one. Search and reports read history in this form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from oomtune.domain.search import Candidate, Kind, Purpose, Stage, Word
from oomtune.domain.trial import Aim, Climbed, Failed, FailedSize, Fitted, Point, TrialError, TrialRecord


class Provenance(Word):
    """What ran before a size in the same process. Leftovers of other sizes change how much memory a size needs."""

    FRESH_PROCESS = "fresh_process"
    AFTER_NEIGHBOUR = "after_neighbour"
    """A smaller size close by ran just before: the peak is nearly that of a fresh process."""
    IN_CLIMB = "in_climb"
    """A climb ran much smaller sizes before: the peak is a strong hint but no proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One size that a trial executed. `kind` and `stage` say how that size ended."""

    trial_number: int
    purpose: Purpose
    aim: Aim
    provenance: Provenance
    candidate: Candidate
    kind: Kind
    stage: Stage
    peak_bytes: int | None = None
    step_ms: float | None = None
    error: TrialError | None = None
    buckets: tuple[tuple[int, int], ...] = ()
    """The buckets, if several lengths took turns; the candidate is then the bucket of the longest samples."""
    duration_s: float | None = None
    """The duration of the whole trial, on its last run only."""

    @property
    def fits(self) -> bool:
        return self.kind is Kind.FITS

    @property
    def over_headroom(self) -> bool:
        """Whether every step ran, with a peak above the budget."""
        return self.kind is Kind.DEVICE_OOM and self.stage is Stage.DONE

    @property
    def is_confirm(self) -> bool:
        return self.purpose is Purpose.CONFIRM

    @property
    def samples_per_second(self) -> float | None:
        # When several lengths take turns, steps differ in size.
        return self.candidate.batch_size * 1000 / self.step_ms if self.step_ms and not self.buckets else None


def runs_of(history: Iterable[TrialRecord]) -> list[Run]:
    """Return every size that ran, in execution order."""
    return [run for record in history for run in _runs_of_trial(record)]


def _runs_of_trial(record: TrialRecord) -> list[Run]:
    outcome = record.outcome
    deciding = Run(
        trial_number=record.number,
        purpose=record.trial.purpose,
        aim=record.trial.aim,
        provenance=Provenance.FRESH_PROCESS,
        candidate=record.ended_at,
        kind=outcome.kind,
        stage=outcome.stage,
        peak_bytes=outcome.peak_bytes,
        step_ms=outcome.step_ms,
        error=outcome.error,
        buckets=record.buckets,
    )
    match outcome:
        case Fitted():
            runs = [deciding, *_fitting(deciding, outcome.further, Provenance.AFTER_NEIGHBOUR)]
            if outcome.further_failed is not None:
                runs.append(_failing(deciding, outcome.further_failed))
        case Climbed():
            runs = _fitting(deciding, outcome.points, Provenance.IN_CLIMB)
        case Failed(points=()):
            runs = [deciding]
        case Failed():
            # The step time belongs to the smaller sizes. The peak does too, unless the last size ran to its end.
            peak_bytes = outcome.peak_bytes if outcome.stage is Stage.DONE else None
            last = replace(deciding, provenance=Provenance.IN_CLIMB, peak_bytes=peak_bytes, step_ms=None)
            runs = [*_fitting(deciding, outcome.points, Provenance.IN_CLIMB), last]
    return [*runs[:-1], replace(runs[-1], duration_s=outcome.duration_s)]


def _fitting(deciding: Run, points: Iterable[Point], provenance: Provenance) -> list[Run]:
    return [
        replace(
            deciding,
            provenance=provenance,
            candidate=deciding.candidate.lane.at(point.batch_size),
            kind=Kind.FITS,
            stage=Stage.DONE,
            peak_bytes=point.peak_bytes,
            step_ms=point.step_ms,
            error=None,
        )
        for point in points
    ]


def _failing(deciding: Run, failed: FailedSize) -> Run:
    return replace(
        deciding,
        provenance=Provenance.AFTER_NEIGHBOUR,
        candidate=deciding.candidate.lane.at(failed.batch_size),
        kind=failed.kind,
        stage=Stage.DONE if failed.over_headroom else Stage.TRAIN,
        peak_bytes=failed.peak_bytes,
        step_ms=None,
    )
