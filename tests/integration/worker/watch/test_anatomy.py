"""The anatomy of real steps: its parts sum to the peak, and its layers hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oomtune.commands.prepare import Preparation
from oomtune.domain import Anatomy, Budget, Candidate, Fitted, Held, Phase, ProbeSpec, Search, TrainStep
from oomtune.domain.observer import SilentObserver
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost
from tests.support.cli import ROOT
from tests.support.specs import CPU, small_probe_spec

BUDGET = Budget(limit_bytes=256 * 1024**2)
DATA: dict[str, Any] = {"inputs": {"shape": [8, 8]}, "targets": {"shape": [1]}}
TWO_LAYERS: dict[str, Any] = {
    "model__layers": [
        {"Input": {"shape": [8, 8]}},
        {"LSTM": {"units": 32, "name": "below"}},
        {"Dense": {"units": 256, "activation": "relu", "name": "above"}},
        {"Dense": {"units": 1}},
    ],
    "dataset__synthetic": DATA,
    "training__optimizer": "adam",
}
STEPS = """
import keras
import tensorflow as tf

def make(batch_size):
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam()

    @tf.function
    def step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    return step
"""


@pytest.fixture(scope="module")
def host() -> Iterator[WorkerHost]:
    worker = WorkerHost("fork", {"TF_ENABLE_ONEDNN_OPTS": "1"})
    yield worker
    worker.close()


def run(host: WorkerHost, spec: ProbeSpec, batch_size: int, *, dissect: bool = True) -> Fitted:
    runner = ForkRunner(spec=spec, device=CPU, budget=BUDGET, notice=print, host=host)
    outcome = runner.run(Search(candidate=Candidate(batch_size=batch_size), shows_anatomy=dissect))
    assert isinstance(outcome, Fitted), outcome.error
    return outcome


def anatomy_of(host: WorkerHost, spec: ProbeSpec, batch_size: int) -> Anatomy:
    anatomy = run(host, spec, batch_size).anatomy
    assert anatomy is not None
    return anatomy


def sizes(anatomy: Anatomy) -> dict[Held, int]:
    return {part.held: part.size_bytes for part in anatomy.parts}


def test_the_parts_of_a_recurrent_model_sum_to_the_peak_and_its_layers_hold_them(host: WorkerHost) -> None:
    spec = small_probe_spec(**TWO_LAYERS)
    anatomy = anatomy_of(host, spec, 1024)
    plain = run(host, spec, 1024, dissect=False)
    assert plain.anatomy is None
    assert anatomy.total_bytes == anatomy.peak_bytes == pytest.approx(plain.peak_bytes, rel=0.1)
    weights = 4 * (4 * (32 * (8 + 32) + 32) + 33 * 256 + 257)
    assert sizes(anatomy)[Held.WEIGHTS] == weights
    assert 2 * weights <= sizes(anatomy)[Held.OPTIMIZER_STATE] < 2 * weights + 100
    assert sizes(anatomy)[Held.ACTIVATIONS] > 0.5 * anatomy.peak_bytes
    assert anatomy.phase is Phase.BACKWARD
    assert [layer.name for layer in anatomy.layers[:2]] == ["below", "above"]
    assert anatomy.layers[1].activations_bytes >= 1024 * 256 * 4
    assert "LSTM" in anatomy.layer_classes
    assert anatomy.layers_measured
    assert {part.held: part.measured for part in anatomy.parts}[Held.ACTIVATIONS]


def test_a_model_with_many_weights_peaks_in_gradients_and_the_update(host: WorkerHost) -> None:
    layers = [
        {"Input": {"shape": [64]}},
        {"Dense": {"units": 2048}},
        {"Dense": {"units": 2048}},
        {"Dense": {"units": 1}},
    ]
    anatomy = anatomy_of(host, small_probe_spec(model__layers=layers, training__optimizer="adam"), 1)
    weights = sizes(anatomy)[Held.WEIGHTS]
    assert anatomy.phase in (Phase.BACKWARD, Phase.UPDATE)
    assert sizes(anatomy)[Held.OPTIMIZER_STATE] == pytest.approx(2 * weights, rel=0.01)
    assert sizes(anatomy)[Held.GRADIENTS] + anatomy.update_bytes > 0.5 * weights
    assert sizes(anatomy)[Held.ACTIVATIONS] < 0.05 * anatomy.peak_bytes
    assert anatomy.layers[0].name == "dense_1"


@pytest.mark.parametrize("how", [{"training__jit_compile": True}, {"training__run_eagerly": True}])
def test_parts_of_a_step_without_layer_names_are_computed_and_marked_as_such(
    host: WorkerHost, how: dict[str, Any]
) -> None:
    anatomy = anatomy_of(host, small_probe_spec(**how), 512)
    assert anatomy.total_bytes == anatomy.peak_bytes
    assert not any(part.measured for part in anatomy.parts)
    assert ("XLA" if "training__jit_compile" in how else "eagerly") in anatomy.why_computed
    assert anatomy.layers[0].activations_bytes == 512 * 512 * 4


def test_the_users_own_step_is_dissected_too(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    spec = small_probe_spec(tmp_path)
    model = TrainStep(factory="steps:make")
    anatomy = anatomy_of(host, dataclasses.replace(spec, model=model), 2048)
    weights = 4 * (64 * 256 + 256 + 257)
    assert sizes(anatomy)[Held.WEIGHTS] == weights
    assert 2 * weights <= sizes(anatomy)[Held.OPTIMIZER_STATE] < 2 * weights + 100
    assert anatomy.layers[0].class_name == "Dense"
    assert anatomy.layers[0].activations_bytes >= 2048 * 256 * 4


# ResNet50 takes most of a minute to trace.
CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.yaml") if path.stem != "resnet50")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_parts_of_the_configs_sum_to_their_peaks(host: WorkerHost, path: Path) -> None:
    loaded = load_spec(path)
    preparation = Preparation(SilentObserver(), host)
    spec = preparation.read_data(loaded, preparation.resolve_device(loaded)).spec
    limit_bytes = loaded.spec.device.memory_limit_bytes
    assert limit_bytes is not None
    smallest = min(spec.space.lanes(), key=lambda lane: lane.sequence_length or 0)
    batch_size = next(size for size in spec.space.batch_sizes if size >= 16)
    runner = ForkRunner(spec=spec, device=CPU, budget=Budget(limit_bytes=limit_bytes), notice=print, host=host)
    outcome = runner.run(Search(candidate=smallest.at(batch_size), shows_anatomy=True))
    assert isinstance(outcome, Fitted), outcome.error
    assert outcome.anatomy is not None
    # The allocator's own count of the whole trial.
    assert outcome.anatomy.total_bytes == pytest.approx(outcome.peak_bytes, rel=0.1)
