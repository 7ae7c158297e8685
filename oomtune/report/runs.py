"""Each size that was run, with how it ended: the numbers that every way of showing a probe takes from here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oomtune.domain import Candidate, Kind, ProbeResult, Purpose, Stage, TrialError, TrialRecord
from oomtune.report.endings import Ending, ending_of, outcome_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One size of one trial. A climb has a run for each of its sizes, every other trial has one."""

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
    for_buckets: bool = False
    error: TrialError | None = None

    @property
    def samples_per_second(self) -> float | None:
        # By turns of several lengths a step has no one size.
        return self.candidate.batch_size * 1000 / self.step_ms if self.step_ms and not self.buckets else None


def runs(records: Iterable[TrialRecord]) -> list[Run]:
    """Every size that was run, in the order they ran."""
    return [run for record in records for run in runs_of(record)]


def runs_of(record: TrialRecord) -> list[Run]:
    trial, outcome = record.trial, record.outcome
    found = [
        Run(
            trial=record.number,
            purpose=trial.purpose,
            candidate=trial.candidate.lane.at(point.batch_size),
            ending=Ending.FITS,
            kind=Kind.FITS,
            stage=Stage.DONE,
            peak_bytes=point.peak_bytes,
            step_ms=point.step_ms,
            duration_s=outcome.duration_s if outcome.kind is Kind.FITS and point == outcome.points[-1] else None,
            for_buckets=trial.for_buckets,
        )
        for point in outcome.points
    ]
    if found and outcome.kind is Kind.FITS:
        return found
    return [*found, _last(record)]


def _last(record: TrialRecord) -> Run:
    trial, outcome = record.trial, record.outcome
    fits = outcome.kind is Kind.FITS
    return Run(
        trial=record.number,
        purpose=trial.purpose,
        candidate=trial.candidate
        if fits
        else trial.candidate.lane.at(outcome.failed_batch_size or trial.candidate.batch_size),
        ending=ending_of(record),
        kind=outcome.kind,
        stage=outcome.stage,
        # What a climb had seen before it failed is the peak and the time of smaller sizes.
        peak_bytes=outcome.peak_bytes if outcome.stage is Stage.DONE or not outcome.points else None,
        step_ms=None if outcome.points else outcome.step_ms,
        duration_s=outcome.duration_s,
        buckets=trial.buckets,
        for_buckets=trial.for_buckets,
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
    run = shown[len(points) - 1] if points else shown[-1]
    batch = str(run.candidate.batch_size)
    if len(points) > 1:
        batch = f"{points[0].batch_size} to {batch}"
    if run.buckets:
        batch = ", ".join(f"{size} of {length}" for length, size in run.buckets)
    return TrialEntry(
        run=run,
        batch=batch,
        ended=outcome_words(record),
        ending=ending_of(record),
        error=record.outcome.error,
        duration_s=record.outcome.duration_s,
    )
