"""Measure what a trial costs beside its model, and a command beside Python: `make bench-cost` prints both.

A trial is compared with the same steps in a process that has TensorFlow imported, a command with `python -c pass`. All
figures are medians.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pydantic import TypeAdapter

from oomtune.devices import resolve
from oomtune.domain import Candidate, Kind, ProbeSpec, Search, WorkOrder
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner

CASES = [("configs/lstm.yaml", 64, 64), ("configs/transformer.yaml", 64, 16), ("configs/cnn.yaml", None, 64)]
COMMANDS = {"--help": 12, "schema": 25}
MOST_ABOVE_S = 0.3
REPEATS = 7


def trial_above_model(path: str, length: int | None, batch: int) -> tuple[float, float]:
    """Return the seconds of a trial, and of its work alone in a process that has TensorFlow imported."""
    spec = _without_validation(load_spec(path).spec)
    found = resolve(spec.device, ())
    trial = Search(candidate=Candidate(batch_size=batch, sequence_length=length))
    runner = ForkRunner(spec=spec, device=found.device, budget=found.budget, notice=print)
    order = WorkOrder(
        trial=trial,
        folder=spec.folder,
        model=spec.model,
        dataset=spec.dataset,
        training=spec.training,
        settings=spec.trial,
        device=found.device,
        budget=found.budget,
    )
    trials, alone = [], []
    with tempfile.TemporaryDirectory() as folder:
        path_of_order = Path(folder) / "order.json"
        path_of_order.write_bytes(TypeAdapter(WorkOrder).dump_json(order))
        try:
            runner.run(trial)  # waits for TensorFlow
            for _ in range(REPEATS):
                outcome = runner.run(trial)
                assert outcome.kind is Kind.FITS, outcome.error
                trials.append(outcome.duration_s)
                alone.append(_alone(path_of_order))
        finally:
            runner.close()
    return statistics.median(trials), statistics.median(alone)


def _without_validation(spec: ProbeSpec) -> ProbeSpec:
    return dataclasses.replace(spec, training=dataclasses.replace(spec.training, validation_batch_size=0))


def _alone(order: Path) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.in_process", str(order)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(ran.stdout.split()[-1])


def command_above_python(word: str) -> float:
    """Return how many times as long as `python -c pass` a command takes."""
    oomtune = str(Path(sys.executable).with_name("oomtune"))
    ours, python = [], []
    for _ in range(3 * REPEATS):
        ours.append(_wall([oomtune, word]))
        python.append(_wall([sys.executable, "-c", "pass"]))
    return statistics.median(ours) / statistics.median(python)


def _wall(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> int:
    within = True
    for path, length, batch in CASES:
        trial_s, alone_s = trial_above_model(path, length, batch)
        within = within and trial_s - alone_s <= MOST_ABOVE_S
        print(
            f"{path}: a trial {trial_s:.2f} s, its work alone {alone_s:.2f} s, {trial_s - alone_s:+.2f} s", flush=True
        )
    for word, most in COMMANDS.items():
        times = command_above_python(word)
        within = within and times <= most
        print(f"oomtune {word}: {times:.1f} times python -c pass (at most {most})")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
