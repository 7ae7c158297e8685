"""Remedies in a real search: accumulation, a lighter optimizer, a precision that can't train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from oomtune.domain import Budget, Candidate, Climb, Kind, Search, Trial
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost
from tests.support.cli import Cli
from tests.support.specs import BUDGET, CPU, small_probe_spec

# An optimizer that fails where accumulated gradients are really applied: what it writes would stay in the trial.
BUILDER = """
import keras, tensorflow as tf

def fail():
    raise RuntimeError("gradients were applied")

class Failing(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
        tf.numpy_function(fail, [], [])
        super().update_step(gradient, variable, learning_rate)

def build():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile(optimizer=Failing(gradient_accumulation_steps=50), loss="mse")
    return model
"""
MIB = 1024**2


@pytest.fixture(scope="module")
def host() -> Iterator[WorkerHost]:
    host = WorkerHost("fork")
    yield host
    host.close()


@pytest.mark.parametrize(
    "trial",
    [Search(candidate=Candidate(batch_size=8)), Climb(lane=Candidate(batch_size=8).lane, sizes=(8,))],
    ids=["a few steps", "a climb"],
)
def test_a_trial_includes_a_real_update_however_many_steps_that_takes(
    host: WorkerHost, tmp_path: Path, trial: Trial
) -> None:
    (tmp_path / "own.py").write_text(BUILDER)
    spec = small_probe_spec(tmp_path, model__layers=None, model__builder="own:build", training={})
    runner = ForkRunner(spec=spec, device=CPU, budget=BUDGET, notice=print, host=host)
    outcome = runner.run(trial)
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert "gradients were applied" in outcome.error.message


def test_an_unknown_optimizer_is_reported_before_any_trial(host: WorkerHost) -> None:
    spec = small_probe_spec(search__optimizer=["sgd", "adagard"])
    runner = ForkRunner(spec=spec, device=CPU, budget=BUDGET, notice=print, host=host)
    outcome = runner.run(Search(candidate=Candidate(batch_size=8, optimizer="sgd")))
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert "search.optimizer" in outcome.error.message
    assert "adagard" in outcome.error.message


def test_a_trial_shows_the_copy_of_the_weights_that_accumulation_costs(host: WorkerHost) -> None:
    peaks = {}
    for effective in (None, 64):
        spec = small_probe_spec(training__effective_batch_size=effective)
        runner = ForkRunner(spec=spec, device=CPU, budget=Budget(limit_bytes=64 * MIB), notice=print, host=host)
        peaks[effective] = runner.run(Search(candidate=Candidate(batch_size=4))).peak_bytes or 0
    weights_bytes = 4 * (64 * 512 + 512 + 512 * 512 + 512 + 512 + 1)
    assert peaks[64] - peaks[None] > 0.9 * weights_bytes


def test_a_minimum_batch_size_picks_the_lighter_optimizer_or_exits_3(cli: Cli, spec_file: Callable[..., Path]) -> None:
    """1.2 MB of weights, their gradients and Adam's two copies fill 5 MiB; without the copies there is room."""
    spec = spec_file(
        search__optimizer=["adam", {"class_name": "SGD", "config": {"momentum": 0.0}}],
        search__min_batch_size=8,
        search__batch_size=[1, 8, 16],
        device__memory_limit="5MiB",
        trial__confirm_steps=2,
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["best"]["optimizer"] == "SGD"
    assert {trial["candidate"]["optimizer"] for trial in ran.document["trials"]} == {"adam", "SGD"}
    tuned = yaml.safe_load((cli.folder / "model.tuned.yaml").read_text())["tuned"]
    assert tuned["optimizer"] == {"class_name": "SGD", "config": {"momentum": 0.0}}
    high = cli("probe", spec, "--set", "search.batch_size=[1, 4000]", "--set", "search.min_batch_size=4000")
    assert high.code == 3
    assert "search.min_batch_size" in high.err


def test_a_precision_whose_loss_overflows_is_refused_with_its_step(cli: Cli, spec_file: Callable[..., Path]) -> None:
    """Sums of 64 inputs times 3000 exceed the largest float16, 65504, but not the largest bfloat16."""
    huge = {"class_name": "Constant", "config": {"value": 3000.0}}
    spec = spec_file(
        model__layers=[{"Input": {"shape": [64]}}, {"Dense": {"units": 64, "kernel_initializer": huge}}],
        dataset__synthetic__targets={"shape": [64], "dtype": "float32"},
        training__optimizer={"class_name": "SGD", "config": {"learning_rate": 1e-12}},
        search__precision=["mixed_float16", "mixed_bfloat16"],
        search__batch_size=[64, 128],
        trial__confirm_steps=2,
    )
    ran = cli("probe", spec, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["best"]["precision"] == "mixed_bfloat16"
    assert ran.document["refused_precisions"] == {"mixed_float16": "the loss is inf at step 1 under mixed_float16"}
    assert "mixed_float16 is refused: the loss is inf at step 1" in ran.err
    alone = cli("probe", spec, "--set", "search.precision=[mixed_float16]", "--json")
    assert alone.code == 6
    assert alone.document["error"]["code"] == "loss_not_finite"
