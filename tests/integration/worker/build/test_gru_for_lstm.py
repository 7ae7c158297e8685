"""A model whose LSTMs are replaced by GRUs, for `oomtune explain` to measure."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from oomtune.domain import Budget, Candidate, Fitted, Kind, ModelVariant, Outcome, ProbeSpec, Search
from oomtune.trials.local import ForkRunner
from oomtune.trials.worker_host import WorkerHost
from tests.support.specs import CPU, small_probe_spec

DATA: dict[str, Any] = {"inputs": {"shape": [8, 8]}, "targets": {"shape": [1]}}
STATES = """
import keras

def build():
    inputs = keras.Input((8, 8))
    encoded, hidden, cell = keras.layers.LSTM(8, return_state=True)(inputs)
    decoded = keras.layers.LSTM(8)(inputs, initial_state=[hidden, cell])
    return keras.Model(inputs, keras.layers.Dense(1)(decoded))
"""


def run_with_gru(host: WorkerHost, spec: ProbeSpec) -> Outcome:
    changed = dataclasses.replace(spec, variant=ModelVariant.GRU_FOR_LSTM)
    runner = ForkRunner(spec=changed, device=CPU, budget=Budget(limit_bytes=256 * 1024**2), notice=print, host=host)
    return runner.run(Search(candidate=Candidate(batch_size=8), shows_anatomy=True))


def test_each_lstm_is_replaced_by_a_gru(host: WorkerHost) -> None:
    layers = [
        {"Input": {"shape": [8, 8]}},
        {"Bidirectional": {"layer": {"LSTM": {"units": 8, "unit_forget_bias": True}}, "name": "both"}},
        {"Dense": {"units": 1}},
    ]
    outcome = run_with_gru(host, small_probe_spec(model__layers=layers, dataset__synthetic=DATA))
    assert isinstance(outcome, Fitted), outcome.error
    assert outcome.anatomy is not None
    assert "GRU" in outcome.anatomy.layer_classes
    assert "LSTM" not in outcome.anatomy.layer_classes
    assert "both" in {layer.name for layer in outcome.anatomy.layers}


def test_an_lstm_inside_another_layer_is_not_replaced_and_reported(host: WorkerHost) -> None:
    layers = [
        {"Input": {"shape": [2, 8, 8]}},
        {"TimeDistributed": {"layer": {"LSTM": {"units": 8}}}},
        {"Flatten": {}},
        {"Dense": {"units": 1}},
    ]
    data = {"inputs": {"shape": [2, 8, 8]}, "targets": {"shape": [1]}}
    outcome = run_with_gru(host, small_probe_spec(model__layers=layers, dataset__synthetic=data))
    assert outcome.error is not None
    assert "lstm is inside another layer" in outcome.error.message


def test_an_lstm_that_a_gru_cannot_replace_is_reported_with_the_reason(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "states.py").write_text(STATES)
    spec = small_probe_spec(tmp_path, model={"builder": "states:build"}, dataset__synthetic=DATA)
    outcome = run_with_gru(host, spec)
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert "both states" in outcome.error.message
