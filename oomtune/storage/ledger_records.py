"""One trial as a line of a ledger. The line is flat and its keys never change, so that old ledgers stay readable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from oomtune.domain import Aim, BucketTurns, Candidate, Climb, Confirm, Outcome, Purpose, Search, Trial, TrialRecord


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
class _RecordLine:
    number: int
    trial: _TrialLine
    outcome: Outcome


def record_document(record: TrialRecord) -> dict[str, Any]:
    """Return the record as plain data."""
    line = _RecordLine(number=record.number, trial=_trial_line(record.trial), outcome=record.outcome)
    document: dict[str, Any] = _lines().dump_python(line, mode="json")
    return document


def parse_record(text: bytes | str) -> TrialRecord:
    """Read one line of a ledger. Raise pydantic's `ValidationError` when the line is no record."""
    line = _lines().validate_json(text)
    return TrialRecord(number=line.number, trial=_trial(line.trial), outcome=line.outcome)


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
