"""One trial as a line of a ledger. Lines are flat and their keys never change, so that old ledgers stay readable."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from oomtune.domain import (
    Aim,
    BucketTurns,
    Candidate,
    Climb,
    Climbed,
    Confirm,
    Failed,
    Fitted,
    Kind,
    Outcome,
    Purpose,
    Search,
    Trial,
    TrialRecord,
)

# Every key of a line with its value where a kind of trial or outcome has no such field.
_TRIAL_KEYS: dict[str, Any] = {
    "purpose": None, "candidate": None, "climb": [], "buckets": [], "for_buckets": False, "for_time": False,
    "every_size": False, "dissected": False, "further": [], "afar_s": None,
}  # fmt: skip
_OUTCOME_KEYS: dict[str, Any] = {
    "kind": None, "stage": "done", "peak_bytes": None, "step_ms": None, "steps_run": 0, "points": [],
    "failed_batch_size": None, "leak_bytes_per_step": 0, "findings": [], "allocator": None, "jit_compile": None,
    "parameters": None, "validated": False, "anatomy": None, "duration_s": 0.0, "error": None, "further": [],
    "further_failed": None,
}  # fmt: skip
# The fields whose key in a line is not their name.
_KEYS = {
    "sizes": "climb",
    "shows_anatomy": "dissected",
    "further_within_s": "afar_s",
    "batch_size": "failed_batch_size",
}


def record_document(record: TrialRecord) -> dict[str, Any]:
    """Return the record as plain data."""
    trial = {
        **_flat(record.trial, _TRIAL_KEYS),
        "candidate": _adapter(Candidate).dump_python(record.trial.candidate, mode="json"),
        "for_buckets": record.trial.aim is Aim.BUCKETS,
        "for_time": record.trial.aim is Aim.TIMING,
    }
    return {"number": record.number, "trial": trial, "outcome": _flat(record.outcome, _OUTCOME_KEYS)}


def parse_record(text: bytes | str) -> TrialRecord:
    """Read one line of a ledger. Raise `ValueError` if the line is no record."""
    document = json.loads(text)
    try:
        trial = _trial(document["trial"])
        return TrialRecord(number=document["number"], trial=trial, outcome=_outcome(document["outcome"], trial))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no record of a trial: {error!r}") from None


def _trial(line: dict[str, Any]) -> Trial:
    candidate: Candidate = _adapter(Candidate).validate_python(line["candidate"])
    aim = Aim.BUCKETS if line.get("for_buckets") else Aim.TIMING if line.get("for_time") else Aim.ANSWER
    trial: Trial
    if line["purpose"] == Purpose.CALIBRATE:
        sizes = line.get("climb") or [candidate.batch_size]
        trial = _read(Climb, line, lane=candidate.lane, sizes=sizes, aim=aim)
    elif line.get("buckets"):
        trial = _read(BucketTurns, line, lane=candidate.lane)
    else:
        trial = _read(Confirm if line["purpose"] == Purpose.CONFIRM else Search, line, aim=aim)
    return trial


def _outcome(line: dict[str, Any], trial: Trial) -> Outcome:
    outcome: Outcome
    if line["kind"] == Kind.FITS:
        outcome = _read(Climbed if line.get("points") else Fitted, line)
    else:
        outcome = _read(Failed, line, batch_size=line.get("failed_batch_size") or trial.candidate.batch_size)
    return outcome


def _flat(value: Trial | Outcome, keys: dict[str, Any]) -> dict[str, Any]:
    """Return the value under exactly these keys."""
    kind: Any = type(value)
    fields: dict[str, Any] = _adapter(kind).dump_python(value, mode="json")
    named = {_KEYS.get(name, name): field for name, field in fields.items()}
    return {key: named.get(key, default) for key, default in keys.items()}


def _read(kind: Any, line: dict[str, Any], **given: Any) -> Any:
    """Read the fields of this kind from a line, except those that are given."""
    keys = {field.name: _KEYS.get(field.name, field.name) for field in dataclasses.fields(kind)}
    values = {name: line[key] for name, key in keys.items() if key in line}
    return _adapter(kind).validate_python(values | given)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
