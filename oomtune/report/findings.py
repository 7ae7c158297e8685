"""What the trials showed beside the answer, in words: what will go wrong in longer training, and why not more fits."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain import Finding, ProbeResult, Purpose, TrialError, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    message: str
    where: str
    hint: str


def findings(result: ProbeResult) -> tuple[Finding, ...]:
    """What the run that confirmed the answer showed; where nothing was confirmed, the last that was to."""
    if result.best is not None and result.best.confirmed_by is not None:
        return result.best.confirmed_by.outcome.findings
    confirms = [record for record in result.records if record.trial.purpose is Purpose.CONFIRM]
    return confirms[-1].outcome.findings if confirms else ()


def finding_rows(result: ProbeResult) -> list[FindingRow]:
    """Each finding, with how long memory lasts where it makes it grow, and why the next larger batch does not fit."""
    peak = result.best.peak_bytes if result.best else result.budget.limit_bytes
    left_bytes = result.budget.limit_bytes - peak
    rows = []
    for finding in findings(result):
        rate = finding.bytes_per_step
        lasts = f"; what is left of the limit lasts {left_bytes // rate:,} steps" if rate and left_bytes > 0 else ""
        rows.append(FindingRow(message=f"{finding.message}{lasts}", where=finding.where, hint=finding.hint))
    error = fragmentation(result)
    if error is not None and result.next_larger is not None:
        batch = result.next_larger[0].batch_size
        rows.append(FindingRow(message=f"batch {batch}: {error.message}", where="", hint=error.hint))
    return rows


def is_fragmented(record: TrialRecord) -> bool:
    return record.outcome.error is not None and record.outcome.error.is_fragmentation


def fragmentation(result: ProbeResult) -> TrialError | None:
    """Why the next larger batch does not fit, if that is fragmentation."""
    if result.next_larger is None:
        return None
    larger = result.next_larger[0]
    errors = [record.outcome.error for record in result.records if record.ended_at == larger and is_fragmented(record)]
    return errors[-1] if errors else None
