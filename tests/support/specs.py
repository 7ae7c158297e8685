"""Specs that tests probe: small models whose trials take about a second."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from oomtune.domain import Budget, Device, ProbeSpec, Trial, WorkOrder
from oomtune.errors import SpecProblem
from oomtune.spec import load_spec

_SMALL: dict[str, Any] = {
    "model": {
        "layers": [
            {"Input": {"shape": [64]}},
            {"Dense": {"units": 512, "activation": "relu"}},
            {"Dense": {"units": 512, "activation": "relu"}},
            {"Dense": {"units": 1}},
        ]
    },
    "dataset": {
        "synthetic": {"inputs": {"shape": [64], "dtype": "float32"}, "targets": {"shape": [1], "dtype": "float32"}}
    },
    "training": {"optimizer": "sgd", "loss": "mean_squared_error"},
    "search": {"batch_size": {"min": 1, "max": 8192}, "resolution": 0.05},
    "device": {"kind": "cpu", "memory_limit": "24MiB"},
    "trial": {"confirm_steps": 4, "timeout": "2m"},
}

CPU = Device(kind="cpu", name="a CPU")
BUDGET = Budget(limit_bytes=24 * 1024**2)


def small_spec(**overrides: Any) -> dict[str, Any]:
    """The small spec with entries replaced: `search__resolution=0` sets `search.resolution`."""
    values = copy.deepcopy(_SMALL)
    for key, value in overrides.items():
        entry = values
        *parents, last = key.split("__")
        for part in parents:
            entry = entry.setdefault(part, {})
        if value is None:
            entry.pop(last, None)
        else:
            entry[last] = value
    return values


def small_probe_spec(folder: Path | None = None, **overrides: Any) -> ProbeSpec:
    """Load the small spec, with overrides, as `load_spec` gives it."""
    import dataclasses

    spec = load_spec(small_spec(**overrides)).spec
    return dataclasses.replace(spec, folder=str(folder)) if folder else spec


def small_work_order(trial: Trial, folder: Path | None = None, **overrides: Any) -> WorkOrder:
    """Order a trial of the small spec, as a runner sends it to the worker."""
    spec = small_probe_spec(folder, **overrides)
    return WorkOrder(
        trial=trial,
        folder=spec.folder,
        model=spec.model,
        dataset=spec.dataset,
        training=spec.training,
        settings=spec.trial,
        device=CPU,
        budget=BUDGET,
    )


def spec_problems(source: Any, **options: Any) -> list[str]:
    """Return the problems that loading a spec raises."""
    with pytest.raises(SpecProblem) as caught:
        load_spec(source, **options)
    return [str(problem) for problem in caught.value.problems]
