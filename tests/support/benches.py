"""A made-up bench for explanations: outcomes follow a formula, so no TensorFlow runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from oomtune.commands.explain.candidate import Request
from oomtune.commands.explain.run import explain
from oomtune.domain import (
    Anatomy,
    Budget,
    Candidate,
    Explanation,
    Fitted,
    Held,
    Kind,
    LayerMemory,
    Outcome,
    Part,
    Phase,
    ProbeSpec,
    Search,
    Trial,
    TrialError,
)
from oomtune.trials.fake import FakeDevice
from tests.support.outcomes import failed
from tests.support.specs import CPU, small_probe_spec

MIB = 1024**2
BUDGET = Budget(limit_bytes=100 * MIB, headroom=0.0)
SEQUENCES: dict[str, Any] = {
    "model__layers": [{"Input": {"shape": ["sequence_length", 4]}}, {"LSTM": {"units": 4}}, {"Dense": {"units": 1}}],
    "dataset__synthetic": {"inputs": {"shape": ["sequence_length", 4]}, "targets": {"shape": [1]}},
    "search__sequence_length": [32, 64, 128],
    "training__optimizer": "adam",
}
ANATOMY = Anatomy(
    peak_bytes=50 * MIB,
    parts=(
        Part(held=Held.WEIGHTS, size_bytes=5 * MIB, measured=False),
        Part(held=Held.ACTIVATIONS, size_bytes=45 * MIB, measured=True),
    ),
    layers=(LayerMemory(name="[bold]lstm", class_name="LSTM", weights_bytes=MIB, activations_bytes=45 * MIB),),
    layers_measured=True,
    phase=Phase.BACKWARD,
    layer_classes=("Dense", "LSTM"),
)
Law = Callable[[ProbeSpec, Candidate], int]


def law(spec: ProbeSpec, candidate: Candidate) -> int:
    """Return 10 MiB, 6 of them for the optimizer, plus 1 MiB per sample of 128 tokens, which remat halves."""
    fixed = 10 if spec.training.optimizer == "adam" else 4
    share = (candidate.sequence_length or 128) / 128 * (0.5 if candidate.remat == "full" else 1.0)
    return int((fixed + candidate.batch_size * share) * MIB)


def is_dissection(trial: Trial) -> bool:
    return isinstance(trial, Search) and trial.shows_anatomy


class FakeBench:
    """Runs trials on a fake device with this law; nothing runs under XLA."""

    def __init__(self, law: Law = law) -> None:
        self.law = law
        self.ran: list[tuple[str, Trial]] = []

    @property
    def trials(self) -> int:
        return len(self.ran)

    def run(self, what: str, spec: ProbeSpec, budget: Budget, trial: Trial) -> Outcome:
        self.ran.append((what, trial))
        device = FakeDevice(
            limit_bytes=budget.limit_bytes, headroom=budget.headroom, law=lambda candidate: self.law(spec, candidate)
        )
        outcome = dataclasses.replace(device.run(trial), jit_compile=False, duration_s=1.0)
        if spec.training.jit_compile:
            error = TrialError(code="raised", message="XLA can't do that\nand more")
            return failed(Kind.CRASH, error=error)
        if is_dissection(trial) and isinstance(outcome, Fitted):
            return dataclasses.replace(outcome, anatomy=ANATOMY)
        return outcome


def explained(request: Request | None = None, bench: FakeBench | None = None, **overrides: Any) -> Explanation:
    spec = small_probe_spec(**SEQUENCES | overrides)
    return explain(spec, CPU, BUDGET, request or Request(), bench or FakeBench())
