"""Sizes that really ran: the form in which everything reads history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from oomtune.domain.search import Candidate, Kind, Purpose, Stage, Word
from oomtune.domain.trial import Aim, Point, TrialError, TrialRecord


class Provenance(Word):
    """What ran before a size in the same process. Leftovers of other sizes change how much memory a size needs."""

    FRESH_PROCESS = "fresh_process"
    AFTER_NEIGHBOUR = "after_neighbour"
    """A smaller size close by ran just before: the peak is nearly that of a fresh process."""
    IN_CLIMB = "in_climb"
    """A climb ran much smaller sizes before: the peak is a strong hint and no proof."""


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
    """Set when several lengths took turns; the candidate is the longest of them."""
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
    """Return every size that ran, in the order the sizes ran."""
    return [run for record in history for run in _runs_of_trial(record)]


def _runs_of_trial(record: TrialRecord) -> Iterator[Run]:
    outcome = record.outcome
    runs = [_fitting(record, point, Provenance.IN_CLIMB) for point in outcome.points]
    if not runs or outcome.kind is not Kind.FITS:
        runs.append(_own(record))
    runs += [_fitting(record, point, Provenance.AFTER_NEIGHBOUR) for point in outcome.further]
    failed = outcome.further_failed
    if failed is not None:
        run = Run(
            trial_number=record.number,
            purpose=record.trial.purpose,
            aim=record.trial.aim,
            provenance=Provenance.AFTER_NEIGHBOUR,
            candidate=record.trial.candidate.lane.at(failed.batch_size),
            kind=failed.kind,
            stage=Stage.TRAIN if failed.peak_bytes is None else Stage.DONE,
            peak_bytes=failed.peak_bytes,
        )
        runs.append(run)
    yield from runs[:-1]
    yield replace(runs[-1], duration_s=outcome.duration_s)


def _own(record: TrialRecord) -> Run:
    """Return the run that decided the outcome: the candidate itself, or the size at which a climb failed."""
    trial, outcome = record.trial, record.outcome
    # The step time of a climb is that of the smaller sizes, and so is its peak when the last size did not finish.
    in_climb = bool(outcome.points)
    return Run(
        trial_number=record.number,
        purpose=trial.purpose,
        aim=trial.aim,
        provenance=Provenance.IN_CLIMB if in_climb else Provenance.FRESH_PROCESS,
        candidate=trial.candidate if outcome.kind is Kind.FITS else record.ended_at,
        kind=outcome.kind,
        stage=outcome.stage,
        peak_bytes=None if in_climb and outcome.stage is not Stage.DONE else outcome.peak_bytes,
        step_ms=None if in_climb else outcome.step_ms,
        error=outcome.error,
        buckets=record.buckets,
    )


def _fitting(record: TrialRecord, point: Point, provenance: Provenance) -> Run:
    return Run(
        trial_number=record.number,
        purpose=record.trial.purpose,
        aim=record.trial.aim,
        provenance=provenance,
        candidate=record.trial.candidate.lane.at(point.batch_size),
        kind=Kind.FITS,
        stage=Stage.DONE,
        peak_bytes=point.peak_bytes,
        step_ms=point.step_ms,
    )
