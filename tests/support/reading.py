"""Types and functions that tests of data share, beside their fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomtune.domain import Scan
from oomtune.worker.data.source import Sample

Read = Callable[..., tuple[Scan, list[Sample]]]


def shapes(samples: list[Sample]) -> list[tuple[Any, Any]]:
    return [(inputs.shape, targets.shape) for inputs, targets in samples]
