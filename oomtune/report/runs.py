"""Each size that was run, with how it ended: the numbers that every way of showing a probe takes from here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from oomtune.domain import Candidate, FailedSize, Kind, Point, ProbeResult, Purpose, Stage, TrialError, TrialRecord
from oomtune.report.endings import Ending, ending_of, ending_of_size, outcome_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One size of one trial. A climb has a run for each of its sizes; any other trial has one for its candidate and
    one for each larger size that it went on to."""

    trial: int
    purpose: Purpose
    candidate: Candidate
    ending: Ending
    kind: Kind
    stage: Stage
    peak_bytes: int | None = None
    step_ms: float | None = None
    duration_s: float | None = None
    """Of the whole trial, at its last run; None at the others."""
    buckets: tuple[tuple[int, int], ...] = ()
    for_the_answer: bool = True
    further: bool = False
    """Is it one that the trial went on to, after the size that it was for?"""
    error: TrialError | None = None

    @property
    def samples_per_second(self) -> float | None:
        # By turns of several lengths a step has no one size.
        return self.candidate.batch_size * 1000 / self.step_ms if self.step_ms and not self.buckets else None


def runs(records: Iterable[TrialRecord]) -> list[Run]:
    """Every size that was run, in the order they ran."""
    return [run for record in records for run in runs_of(record)]


def runs_of(record: TrialRecord) -> list[Run]:
    outcome = record.outcome
    climbed = [_fitting(record, point) for point in outcome.points]
    own = [] if climbed and outcome.kind is Kind.FITS else [_own(record)]
    further = [replace(_fitting(record, point), further=True) for point in outcome.further]
    beyond = [] if outcome.further_failed is None else [_failing(record, outcome.further_failed)]
    *before, last = [*climbed, *own, *further, *beyond]
    return [*before, replace(last, duration_s=outcome.duration_s)]


def _fitting(record: TrialRecord, point: Point) -> Run:
    """A size that fitted among others in the same process."""
    return Run(
        trial=record.number,
        purpose=record.trial.purpose,
        candidate=record.trial.candidate.lane.at(point.batch_size),
        ending=Ending.FITS,
        kind=Kind.FITS,
        stage=Stage.DONE,
        peak_bytes=point.peak_bytes,
        step_ms=point.step_ms,
        for_the_answer=record.trial.for_the_answer,
    )


def _failing(record: TrialRecord, failed: FailedSize) -> Run:
    """The size that did not fit after those that did."""
    return Run(
        trial=record.number,
        purpose=record.trial.purpose,
        candidate=record.trial.candidate.lane.at(failed.batch_size),
        ending=ending_of_size(failed),
        kind=failed.kind,
        stage=Stage.TRAIN if failed.peak_bytes is None else Stage.DONE,
        peak_bytes=failed.peak_bytes,
        for_the_answer=record.trial.for_the_answer,
        further=True,
    )


def _own(record: TrialRecord) -> Run:
    trial, outcome = record.trial, record.outcome
    fits = outcome.kind is Kind.FITS
    return Run(
        trial=record.number,
        purpose=trial.purpose,
        candidate=trial.candidate
        if fits
        else trial.candidate.lane.at(outcome.failed_batch_size or trial.candidate.batch_size),
        ending=ending_of(record.outcome),
        kind=outcome.kind,
        stage=outcome.stage,
        # What a climb had seen before it failed is the peak and the time of smaller sizes.
        peak_bytes=outcome.peak_bytes if outcome.stage is Stage.DONE or not outcome.points else None,
        step_ms=None if outcome.points else outcome.step_ms,
        buckets=trial.buckets,
        for_the_answer=trial.for_the_answer,
        error=outcome.error,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEntry:
    """One trial as a row of a table: its largest run that fitted, or the one that did not, and how it all ended."""

    run: Run
    batch: str
    """Its size; of a climb, the first and the last that fitted."""
    ended: str
    ending: Ending
    error: TrialError | None
    duration_s: float


def trial_entries(result: ProbeResult) -> list[TrialEntry]:
    return [_entry(record) for record in result.records]


def _entry(record: TrialRecord) -> TrialEntry:
    points = record.outcome.points
    shown = runs_of(record)
    run = shown[len(points) - 1] if points else shown[0]
    batch = str(run.candidate.batch_size)
    if len(points) > 1:
        batch = f"{points[0].batch_size} to {batch}"
    if run.buckets:
        batch = ", ".join(f"{size} of {length}" for length, size in run.buckets)
    return TrialEntry(
        run=run,
        batch=batch,
        ended=outcome_words(record),
        ending=ending_of(record.outcome),
        error=record.outcome.error,
        duration_s=record.outcome.duration_s,
    )
