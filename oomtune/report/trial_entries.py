"""The trials of a probe as rows: what every table of them shows."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain import ProbeResult, Run, TrialError, TrialRecord, runs_of
from oomtune.report.endings import Ending, ending_of, outcome_words


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEntry:
    """One trial as a row of a table: its largest run that fitted, or the one that did not, and how it all ended."""

    run: Run
    batch: str
    """The batch size; for a climb, the first and the last size that fitted."""
    ended: str
    ending: Ending
    error: TrialError | None
    duration_s: float


def trial_entries(result: ProbeResult) -> list[TrialEntry]:
    return [_entry(record) for record in result.records]


def _entry(record: TrialRecord) -> TrialEntry:
    points = record.outcome.points
    run = runs_of([record])[max(0, len(points) - 1)]
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
