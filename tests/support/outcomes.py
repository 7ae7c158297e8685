"""Outcomes for tests that are not about how outcomes come to be."""

from __future__ import annotations

from typing import Any

from oomtune.domain import Failed, FailureKind, Kind, Stage, TrialError


def failed(kind: FailureKind = Kind.DEVICE_OOM, **fields: Any) -> Failed:
    error = TrialError(code=kind.value, message="it failed")
    return Failed(**({"kind": kind, "stage": Stage.TRAIN, "error": error, "batch_size": 8} | fields))
