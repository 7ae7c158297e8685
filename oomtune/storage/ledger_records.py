"""One trial as a line of a ledger. The line is flat and its keys never change, so that old ledgers stay readable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from oomtune.domain import (
    Aim,
    AllocatorState,
    Anatomy,
    BucketTurns,
    Candidate,
    Climb,
    Climbed,
    Confirm,
    Failed,
    FailedSize,
    Finding,
    Fitted,
    Kind,
    Outcome,
    Point,
    Purpose,
    Search,
    Stage,
    Trial,
    TrialError,
    TrialRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TrialLine:
    """Every kind of trial in one shape."""

    purpose: Purpose
    candidate: Candidate
    climb: tuple[int, ...] = ()
    buckets: tuple[tuple[int, int], ...] = ()
    for_buckets: bool = False
    for_time: bool = False
    every_size: bool = False
    dissected: bool = False
    further: tuple[int, ...] = ()
    afar_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutcomeLine:
    """Every kind of outcome in one shape."""

    kind: Kind
    stage: Stage
    peak_bytes: int | None = None
    step_ms: float | None = None
    steps_run: int = 0
    points: tuple[Point, ...] = ()
    failed_batch_size: int | None = None
    leak_bytes_per_step: int = 0
    findings: tuple[Finding, ...] = ()
    allocator: AllocatorState | None = None
    jit_compile: bool | None = None
    parameters: int | None = None
    validated: bool = False
    anatomy: Anatomy | None = None
    duration_s: float = 0.0
    error: TrialError | None = None
    further: tuple[Point, ...] = ()
    further_failed: FailedSize | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordLine:
    number: int
    trial: _TrialLine
    outcome: _OutcomeLine


def record_document(record: TrialRecord) -> dict[str, Any]:
    """Return the record as plain data."""
    line = _RecordLine(number=record.number, trial=_trial_line(record.trial), outcome=_outcome_line(record.outcome))
    document: dict[str, Any] = _lines().dump_python(line, mode="json")
    return document


def parse_record(text: bytes | str) -> TrialRecord:
    """Read one line of a ledger. Raise pydantic's `ValidationError` when the line is no record."""
    line = _lines().validate_json(text)
    trial = _trial(line.trial)
    return TrialRecord(number=line.number, trial=trial, outcome=_outcome(line.outcome, trial))


@cache
def _lines() -> TypeAdapter[_RecordLine]:
    return TypeAdapter(_RecordLine)


def _trial_line(trial: Trial) -> _TrialLine:
    base = _TrialLine(
        purpose=trial.purpose,
        candidate=trial.candidate,
        for_buckets=trial.aim is Aim.BUCKETS,
        for_time=trial.aim is Aim.TIMING,
    )
    match trial:
        case Climb():
            return replace(base, climb=trial.sizes, every_size=trial.every_size)
        case BucketTurns():
            return replace(base, buckets=trial.buckets)
        case Confirm():
            return replace(base, further=trial.further, afar_s=trial.further_within_s)
        case Search():
            return replace(base, further=trial.further, afar_s=trial.further_within_s, dissected=trial.shows_anatomy)


def _trial(line: _TrialLine) -> Trial:
    lane = line.candidate.lane
    aim = Aim.BUCKETS if line.for_buckets else Aim.TIMING if line.for_time else Aim.ANSWER
    if line.purpose is Purpose.CALIBRATE:
        sizes = line.climb or (line.candidate.batch_size,)
        return Climb(lane=lane, sizes=sizes, every_size=line.every_size, aim=aim)
    if line.buckets:
        return BucketTurns(purpose=line.purpose, lane=lane, buckets=line.buckets)
    if line.purpose is Purpose.CONFIRM:
        return Confirm(candidate=line.candidate, further=line.further, further_within_s=line.afar_s, aim=aim)
    return Search(
        candidate=line.candidate,
        further=line.further,
        further_within_s=line.afar_s,
        shows_anatomy=line.dissected,
        aim=aim,
    )


def _outcome_line(outcome: Outcome) -> _OutcomeLine:
    base = _OutcomeLine(
        kind=outcome.kind,
        stage=outcome.stage,
        peak_bytes=outcome.peak_bytes,
        step_ms=outcome.step_ms,
        steps_run=outcome.steps_run,
        points=outcome.points,
        leak_bytes_per_step=outcome.leak_bytes_per_step,
        findings=outcome.findings,
        jit_compile=outcome.jit_compile,
        parameters=outcome.parameters,
        validated=outcome.validated,
        duration_s=outcome.duration_s,
        error=outcome.error,
        further=outcome.further,
        further_failed=outcome.further_failed,
    )
    match outcome:
        case Fitted():
            return replace(base, anatomy=outcome.anatomy)
        case Climbed():
            return base
        case Failed():
            return replace(base, failed_batch_size=outcome.batch_size, allocator=outcome.allocator)


def _outcome(line: _OutcomeLine, trial: Trial) -> Outcome:
    shown: dict[str, Any] = {
        "step_ms": line.step_ms,
        "steps_run": line.steps_run,
        "leak_bytes_per_step": line.leak_bytes_per_step,
        "findings": line.findings,
        "jit_compile": line.jit_compile,
        "parameters": line.parameters,
        "validated": line.validated,
        "duration_s": line.duration_s,
    }
    if line.kind is not Kind.FITS:
        return Failed(
            kind=line.kind,
            stage=line.stage,
            error=line.error or TrialError(code=line.kind.value, message=""),
            batch_size=line.failed_batch_size or trial.candidate.batch_size,
            peak_bytes=line.peak_bytes,
            points=line.points,
            allocator=line.allocator,
            **shown,
        )
    peak_bytes = line.peak_bytes or 0
    if line.points:
        return Climbed(peak_bytes=peak_bytes, points=line.points, **shown)
    further, failed = line.further, line.further_failed
    return Fitted(peak_bytes=peak_bytes, anatomy=line.anatomy, further=further, further_failed=failed, **shown)
