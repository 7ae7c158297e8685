"""Checks for tests: results before and after a run, devices with scripted endings, and a tuned config with its spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from oomtune.domain import (
    Budget,
    Candidate,
    Change,
    CheckResult,
    CheckVerdict,
    Fitted,
    Kind,
    Outcome,
    Trial,
    TrialError,
)
from oomtune.spec import load_spec
from oomtune.storage.tuned import Evidence, TunedConfig, origin_from, tuned_text, write_tuned
from oomtune.trials.fake import FakeDevice
from tests.support.outcomes import failed
from tests.support.specs import CPU, small_spec

# A check whose configuration uses more memory than before, with a name that every format has to escape.
FITTED = Fitted(peak_bytes=900, step_ms=2.0, duration_s=3.0)
RESULT = CheckResult(
    verdict=CheckVerdict.USES_MORE,
    path="models/a,b.yaml",
    where="models/a,b.yaml:12",
    name="<script>alert(1)</script> | *x*",
    candidate=Candidate(batch_size=8),
    device=CPU,
    budget=Budget(limit_bytes=1_000),
    tolerance=0.05,
    outcome=FITTED,
    expected_peak_bytes=600,
    changes=(Change(what="keras", before="3.1", now="3.2"),),
)

BEYOND_ANY_MACHINE = 2**59
"""A limit that only works as long as nothing imposes it."""


def tuned_on(
    kind: str = "cpu", name: str = "a CPU", *, memory_limit_bytes: int = BEYOND_ANY_MACHINE, **fields: Any
) -> TunedConfig:
    """Return an answer found on this device; other fields go to the tuned config or to its evidence."""
    config = {field.name: fields.pop(field.name) for field in dataclasses.fields(TunedConfig) if field.name in fields}
    evidence = Evidence(
        confirmed=True, device_kind=kind, device_name=name, memory_limit_bytes=memory_limit_bytes, **fields
    )
    return TunedConfig(
        **{
            "batch_size": 100, "sequence_length": None, "precision": "float32", "remat": "none",
            "gradient_accumulation_steps": 1, "effective_batch_size": 100, "evidence": evidence, **config,
        }
    )  # fmt: skip


def unrun_check(**fields: Any) -> CheckResult:
    return CheckResult(
        **{
            "verdict": CheckVerdict.FITS, "path": "m.tuned.yaml", "where": "m.tuned.yaml:3", "name": "m",
            "candidate": Candidate(batch_size=100), "device": CPU, "budget": Budget(limit_bytes=1_000, headroom=0.0),
            "tolerance": 0.05, "was_tuned": True, **fields,
        }
    )  # fmt: skip


class ScriptedDevice(FakeDevice):
    """Ends trials with certain numbers as scripted, and the others by the law."""

    def __init__(
        self, endings: Mapping[int, Outcome | type[BaseException]], *, per_sample: int = 5, **kwargs: Any
    ) -> None:
        super().__init__(limit_bytes=1_000, law=lambda candidate: 100 + per_sample * candidate.batch_size, **kwargs)
        self.endings = endings

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        ending = self.endings.get(len(self.ran) + 1)
        if ending is None:
            return super().run(trial, within_s=within_s)
        self.ran.append(trial)
        if not isinstance(ending, Outcome):
            raise ending
        return ending


OOM = failed(error=TrialError(code="device_oom", message="OOM"))
CRASH = failed(Kind.CRASH, error=TrialError(code="raised", message="ValueError: no", hint="h"))


def write_spec_and_tuned(folder: Path, source: str = "net.yml") -> Path:
    """Write a spec and a tuned config for it, with another name, as a probe with flags does. Return the latter."""
    (folder / source).write_text(yaml.safe_dump(small_spec(device__memory_limit="24MiB")))
    settings = ["search.resolution=0.1", "model.layers.1.Dense.units=64"]
    loaded = load_spec(folder / source, settings=settings, flags={"device.like": ("--like", "T4")})
    evidence = {
        "confirmed": True,
        "device": {"kind": "cpu", "name": "x", "memory_limit_bytes": 1024**3},
        **origin_from(folder / "out.yaml", loaded.source, loaded.overridden),
        "spec_sha256": loaded.sha256,
    }
    tuned = {
        "format": 1, "batch_size": 8, "precision": "float32", "remat": "none", "gradient_accumulation_steps": 1,
        "effective_batch_size": 8, "evidence": evidence,
    }  # fmt: skip
    write_tuned(folder / "out.yaml", tuned_text({**loaded.values, "tuned": tuned}))
    return folder / "out.yaml"
