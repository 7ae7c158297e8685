"""What memory holds at the peak of real steps, and `oomtune explain` from end to end."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oomtune.commands.prepare import Preparation
from oomtune.domain import (
    Anatomy,
    Budget,
    Candidate,
    Fitted,
    Held,
    Kind,
    ModelVariant,
    Outcome,
    Phase,
    ProbeSpec,
    Search,
    TrainStep,
)
from oomtune.domain.observer import SilentObserver
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost
from tests.faults.test_interruptions import wait_for
from tests.support.cli import ROOT, Cli, processes_with
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
STATES = """
import keras

def build():
    inputs = keras.Input((8, 8))
    encoded, hidden, cell = keras.layers.LSTM(8, return_state=True)(inputs)
    decoded = keras.layers.LSTM(8)(inputs, initial_state=[hidden, cell])
    return keras.Model(inputs, keras.layers.Dense(1)(decoded))
"""


@pytest.fixture(scope="module")
def host() -> Iterator[WorkerHost]:
    worker = WorkerHost("fork", {"TF_ENABLE_ONEDNN_OPTS": "1"})
    yield worker
    worker.close()


def run(host: WorkerHost, spec: ProbeSpec, batch_size: int, *, dissected: bool = True) -> Outcome:
    runner = ForkRunner(spec=spec, device=CPU, budget=BUDGET, notice=print, host=host)
    candidate = Candidate(batch_size=batch_size)
    return runner.run(Search(candidate=candidate, shows_anatomy=dissected))


def anatomy(host: WorkerHost, spec: ProbeSpec, batch_size: int) -> Anatomy:
    outcome = run(host, spec, batch_size)
    assert isinstance(outcome, Fitted), outcome.error
    assert outcome.anatomy is not None
    return outcome.anatomy


def sizes(found: Anatomy) -> dict[Held, int]:
    return {part.held: part.size_bytes for part in found.parts}


def test_the_parts_of_a_recurrent_model_sum_to_the_peak_and_its_layers_hold_them(host: WorkerHost) -> None:
    spec = small_probe_spec(**TWO_LAYERS)
    found = anatomy(host, spec, 1024)
    plain = run(host, spec, 1024, dissected=False)
    assert isinstance(plain, Fitted)
    assert plain.anatomy is None
    assert found.total_bytes == found.peak_bytes == pytest.approx(plain.peak_bytes, rel=0.1)
    weights = 4 * (4 * (32 * (8 + 32) + 32) + 33 * 256 + 257)
    assert sizes(found)[Held.WEIGHTS] == weights
    assert 2 * weights <= sizes(found)[Held.OPTIMIZER_STATE] < 2 * weights + 100
    assert sizes(found)[Held.ACTIVATIONS] > 0.5 * found.peak_bytes
    assert found.phase is Phase.BACKWARD
    assert [layer.name for layer in found.layers[:2]] == ["below", "above"]
    assert found.layers[1].activations_bytes >= 1024 * 256 * 4
    assert "LSTM" in found.layer_classes
    assert found.layers_measured
    assert {part.held: part.measured for part in found.parts}[Held.ACTIVATIONS]


def test_a_model_with_many_weights_peaks_in_gradients_and_the_update(host: WorkerHost) -> None:
    layers = [
        {"Input": {"shape": [64]}},
        {"Dense": {"units": 2048}},
        {"Dense": {"units": 2048}},
        {"Dense": {"units": 1}},
    ]
    found = anatomy(host, small_probe_spec(model__layers=layers, training__optimizer="adam"), 1)
    weights = sizes(found)[Held.WEIGHTS]
    assert found.phase in (Phase.BACKWARD, Phase.UPDATE)
    assert sizes(found)[Held.OPTIMIZER_STATE] == pytest.approx(2 * weights, rel=0.01)
    assert sizes(found)[Held.GRADIENTS] + found.update_bytes > 0.5 * weights
    assert sizes(found)[Held.ACTIVATIONS] < 0.05 * found.peak_bytes
    assert found.layers[0].name == "dense_1"


@pytest.mark.parametrize("how", [{"training__jit_compile": True}, {"training__run_eagerly": True}])
def test_where_a_step_has_no_inside_its_parts_are_computed_and_said_to_be(
    host: WorkerHost, how: dict[str, Any]
) -> None:
    found = anatomy(host, small_probe_spec(**how), 512)
    assert found.total_bytes == found.peak_bytes
    assert not any(part.measured for part in found.parts)
    assert ("XLA" if "training__jit_compile" in how else "eagerly") in found.why_computed
    assert found.layers[0].activations_bytes == 512 * 512 * 4


def test_a_step_of_the_users_own_is_seen_into_too(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    spec = small_probe_spec(tmp_path)
    model = TrainStep(factory="steps:make")
    found = anatomy(host, dataclasses.replace(spec, model=model), 2048)
    weights = 4 * (64 * 256 + 256 + 257)
    assert sizes(found)[Held.WEIGHTS] == weights
    assert 2 * weights <= sizes(found)[Held.OPTIMIZER_STATE] < 2 * weights + 100
    assert found.layers[0].class_name == "Dense"
    assert found.layers[0].activations_bytes >= 2048 * 256 * 4


def with_gru(spec: ProbeSpec) -> ProbeSpec:
    return dataclasses.replace(spec, variant=ModelVariant.GRU_FOR_LSTM)


def test_a_gru_takes_the_place_of_each_lstm(host: WorkerHost) -> None:
    layers = [
        {"Input": {"shape": [8, 8]}},
        {"Bidirectional": {"layer": {"LSTM": {"units": 8, "unit_forget_bias": True}}, "name": "both"}},
        {"Dense": {"units": 1}},
    ]
    found = anatomy(host, with_gru(small_probe_spec(model__layers=layers, dataset__synthetic=DATA)), 8)
    assert "GRU" in found.layer_classes
    assert "LSTM" not in found.layer_classes
    assert "both" in {layer.name for layer in found.layers}


def test_an_lstm_inside_another_layer_stays_and_that_is_said(host: WorkerHost) -> None:
    layers = [
        {"Input": {"shape": [2, 8, 8]}},
        {"TimeDistributed": {"layer": {"LSTM": {"units": 8}}}},
        {"Flatten": {}},
        {"Dense": {"units": 1}},
    ]
    data = {"inputs": {"shape": [2, 8, 8]}, "targets": {"shape": [1]}}
    outcome = run(host, with_gru(small_probe_spec(model__layers=layers, dataset__synthetic=data)), 8)
    assert outcome.error is not None
    assert "lstm is inside another layer" in outcome.error.message


def test_where_a_gru_can_not_stand_in_that_is_the_reason_given(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "states.py").write_text(STATES)
    spec = small_probe_spec(tmp_path, model={"builder": "states:build"}, dataset__synthetic=DATA)
    outcome = run(host, with_gru(spec), 8)
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert "both states" in outcome.error.message


def test_explain_measures_remedies_and_its_answer_is_one_document(cli: Cli, spec_file: Callable[..., Path]) -> None:
    ran = cli("explain", spec_file(training__optimizer="adam", trial__steps=1), "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    assert (document["command"], document["verdict"]) == ("explain", "explained")
    total = sum(part["bytes"] for part in document["anatomy"]["parts"])
    assert total == pytest.approx(document["memory"]["peak_bytes"], rel=0.1)
    assert document["memory"]["peak_bytes"] == document["before"]["peak_bytes"]
    assert document["before"]["largest_batch_size"]["value"] > document["candidate"]["batch_size"]
    remedies = {remedy["name"]: remedy for remedy in document["remedies"]}
    assert remedies["sgd for adam"]["after"]["peak_bytes"] > 0
    assert remedies["sgd for adam"]["lines"] == ["training: {optimizer: sgd}"]
    for name in ("mixed precision (bfloat16)", "rematerialisation", "XLA on"):
        assert remedies[name]["after"] or remedies[name]["problem"], name
    assert remedies["gradient accumulation"]["after"]["peak_bytes"] > 0
    assert document["growth"]["bytes_per_sample"] == pytest.approx(9_000, rel=0.6), (
        "what contract/test_runners.py has for it"
    )
    assert "trial 1: how memory grows with the batch" in ran.err
    assert not list(cli.folder.glob("*.tuned.yaml"))


def test_what_can_not_be_explained_has_its_exit_code(cli: Cli, spec_file: Callable[..., Path]) -> None:
    assert cli("explain", "missing.yaml").code == 2
    ran = cli("explain", spec_file(), "--memory-limit", "1MiB", "--batch-size", "64", "--json")
    assert (ran.code, ran.document["command"]) == (3, "explain")
    assert "batch 64, float32 does not fit" in ran.err


def test_an_interrupted_explanation_leaves_nothing_running(
    cli: Cli, spec_file: Callable[..., Path], marker: str
) -> None:
    process = cli.start("explain", spec_file(), "--json", env={"MARKER": marker})
    # The command, its worker, and the trial that the worker forked.
    wait_for(lambda: len(processes_with(marker)) >= 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == json.loads(out)["exit_code"] == 130
    assert "interrupted" in err
    wait_for(lambda: processes_with(marker) == [], seconds=20)


# ResNet50 takes most of a minute to trace.
CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.yaml") if path.stem != "resnet50")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_parts_of_the_configs_sum_to_their_peaks(host: WorkerHost, path: Path) -> None:
    """Within a tenth of what the whole trial took, by the allocator's own count."""
    loaded = load_spec(path)
    preparation = Preparation(SilentObserver(), host)
    spec = preparation.read_data(loaded, preparation.resolve_device(loaded)).spec
    limit_bytes = loaded.spec.device.memory_limit_bytes
    assert limit_bytes is not None
    smallest = min(spec.space.lanes(), key=lambda lane: lane.sequence_length or 0)
    candidate = smallest.at(next(size for size in spec.space.batch_sizes if size >= 16))
    runner = ForkRunner(spec=spec, device=CPU, budget=Budget(limit_bytes=limit_bytes), notice=print, host=host)
    outcome = runner.run(Search(candidate=candidate, shows_anatomy=True))
    assert isinstance(outcome, Fitted), outcome.error
    assert outcome.anatomy is not None
    assert outcome.anatomy.total_bytes == pytest.approx(outcome.peak_bytes, rel=0.1)
