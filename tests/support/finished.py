"""Finished probes of made-up models: no TensorFlow, and the same numbers each time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oomtune.domain import (
    Candidate,
    Device,
    Kind,
    Outcome,
    ProbeResult,
    ProbeSpec,
    Scan,
    Trial,
    TrialError,
    TrialRecord,
)
from oomtune.domain.observer import SilentObserver
from oomtune.session import Limits, run_session
from oomtune.spec import load_spec
from oomtune.storage.ledger import Ledger
from oomtune.storage.ledger_format import About, ended_from
from oomtune.trials.fake import FakeDevice
from tests.support.outcomes import failed
from tests.support.specs import small_spec

MIB = 1024**2
CARD = Device(kind="cpu", name="AMD EPYC", stands_in_for="Tesla T4")
VERSIONS = {"oomtune": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1"}
_LENGTHS = tuple((length, max(1, round(900 * 2.0 ** (-length / 90)))) for length in range(8, 513, 8))


def spec_values(**overrides: Any) -> dict[str, Any]:
    """Return a spec with lengths and two precisions."""
    shape = {"shape": ["sequence_length"], "dtype": "float32"}
    entries: dict[str, Any] = {
        "name": "imdb-transformer",
        "model__layers": [{"Input": shape}, {"Dense": {"units": 1}}],
        "dataset__synthetic__inputs": shape,
        "search__batch_size": {"min": 1, "max": 1024},
        "search__sequence_length": [128, 256, 384, 512],
        "search__precision": ["float32", "mixed_bfloat16"],
        "search__resolution": 0.02,
        "trial__confirm_steps": 20,
        "device__memory_limit": "512MiB",
    }
    values: dict[str, Any] = json.loads(json.dumps(small_spec(**{**entries, **overrides})))  # a deep copy
    return values


def memory_law(candidate: Candidate) -> int:
    """Return a fixed part and, for each sample, a part by token and by pair of tokens; half precision takes less."""
    length = candidate.sequence_length or 64
    per_sample = length * 8_000 + length * length * 24
    half = 0.6 if candidate.precision.endswith("float16") else 1.0
    wiggle = 1 + 0.02 * ((candidate.batch_size * 7919) % 13 - 6) / 6 + (0.12 if candidate.batch_size % 9 == 4 else 0)
    return int(max(46 * MIB, 24 * MIB + half * per_sample * candidate.batch_size * wiggle))


class SlowDevice(FakeDevice):
    """A fake device whose trials take time."""

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        outcome = super().run(trial, within_s=within_s)
        steps = 20 if outcome.steps_run == 20 else 4
        duration_s = round(1.3 + steps * self.step_ms(trial.candidate) / 1000, 2)
        return dataclasses.replace(outcome, duration_s=duration_s, validated=outcome.steps_run == 20)


class FailingDevice(SlowDevice):
    """A device on which the user's code raises after a few trials."""

    trials_before = 2
    error = TrialError(
        code="raised",
        message="ValueError: labels </script><script>alert('label')</script> & more \x00\x1b[31m",
        traceback='Traceback (most recent call last):\n  File "<model>", line 3\nValueError: labels\n',
        hint="look at <the labels>",
    )

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if len(self.ran) == self.trials_before:
            return failed(Kind.CRASH, error=self.error, batch_size=trial.candidate.batch_size, duration_s=0.5)
        return super().run(trial, within_s=within_s)


class InterruptedDevice(SlowDevice):
    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if len(self.ran) == 2:
            raise KeyboardInterrupt
        return super().run(trial, within_s=within_s)


def probe_spec(*, with_data: bool = False, every_lane: bool = True, **overrides: Any) -> ProbeSpec:
    spec = load_spec(spec_values(**overrides), every_lane=every_lane).spec
    if not with_data:
        return spec
    samples = sum(many for _, many in _LENGTHS)
    space = dataclasses.replace(spec.space, length_counts=_LENGTHS, most_buckets=4)
    return dataclasses.replace(spec, space=space, scan=Scan(samples=samples, read=samples, lengths=_LENGTHS))


def finished(
    spec: ProbeSpec | None = None,
    *,
    device_class: type[FakeDevice] = SlowDevice,
    limit_bytes: int = 512 * MIB,
    max_trials: int | None = None,
    earlier: Sequence[TrialRecord] = (),
    kept: list[TrialRecord] | None = None,
) -> ProbeResult:
    """Probe `spec` on a made-up device to its end."""
    device = device_class(
        limit_bytes=limit_bytes,
        law=memory_law,
        headroom=0.05,
        step_ms=lambda candidate: 18.0 + candidate.tokens / (640 if candidate.lane.is_half else 420),
    )
    result = run_session(
        spec or probe_spec(),
        CARD,
        device.budget,
        runner=device,
        ledger=kept if kept is not None else [],
        earlier=earlier,
        observer=SilentObserver(),
        limits=Limits(max_trials=max_trials),
        clock=lambda: 0.0,
    )
    return dataclasses.replace(
        result,
        environment={**VERSIONS, "needs_environment": {"TF_ENABLE_ONEDNN_OPTS": "1"}},
        probed_at="2026-11-16T10:00:00Z",
    )


def about_result(
    result: ProbeResult,
    values: dict[str, Any],
    *,
    spec_path: str = "/specs/model.yaml",
    output: str | None = "/specs/model.tuned.yaml",
) -> About:
    return About(
        spec=result.spec,
        spec_path=spec_path,
        spec_sha256="0" * 64,
        values=values,
        device=result.device,
        headroom=result.budget.headroom,
        environment=VERSIONS,
        output=output,
    )


def write_ledger(
    folder: Path,
    result: ProbeResult,
    values: dict[str, Any],
    *,
    spec_path: str = "/specs/model.yaml",
    output: str | None = "/specs/model.tuned.yaml",
    ends: bool = True,
    key: str = "",
) -> Path:
    """Write the ledger that a probe with this result leaves."""
    about = about_result(result, values, spec_path=spec_path, output=output)
    limit_bytes = result.budget.limit_bytes
    with Ledger.open(folder, result.spec.name, {"key": key}, limit_bytes=limit_bytes, fresh=True) as ledger:
        ledger.begin(about, "2026-11-16T09:58:00Z")
        for record in result.records:
            ledger.append(record)
        if ends:
            ledger.end(ended_from(result))
        return ledger.path
