"""Losses, their weights and metrics: for all outputs, for each by name, or for each in order."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import TypeAdapter

from oomtune.domain import ByOutput, ClassConfig, TrainingSpec
from oomtune.errors import SpecProblem
from oomtune.spec import load_spec
from oomtune.spec.schema import json_schema
from tests.support.specs import small_spec

HUBER = {"class_name": "Huber", "config": {"delta": 2.0}}


@pytest.mark.parametrize(
    ("training", "read"),
    [
        ({"loss": "mse"}, TrainingSpec(loss="mse")),
        ({"loss": {"class_name": "Huber"}}, TrainingSpec(loss=ClassConfig(class_name="Huber"))),
        ({"loss": HUBER}, TrainingSpec(loss=ClassConfig(class_name="Huber", config={"delta": 2.0}))),
        (
            {"loss": {"a": "mse", "b": HUBER, "c": None}, "loss_weights": {"c": 0, "b": 2, "a": 0.5}},
            TrainingSpec(
                loss=ByOutput(
                    names=("a", "b", "c"),
                    entries=(("mse",), (ClassConfig(class_name="Huber", config={"delta": 2.0}),), ()),
                ),
                loss_weights=(0.5, 2.0, 0.0),
            ),
        ),
        (
            {"loss": ["mse", None], "loss_weights": [1, 2], "metrics": ["accuracy", "mae"]},
            TrainingSpec(loss=ByOutput(entries=(("mse",), ())), loss_weights=(1.0, 2.0), metrics=("accuracy", "mae")),
        ),
        (
            {"loss": "mse", "metrics": [["mae", "mse"], None]},
            TrainingSpec(loss="mse", metrics=ByOutput(entries=(("mae", "mse"), ()))),
        ),
        (
            {"loss": "mse", "metrics": {"a": "mae", "b": ["mse", HUBER]}},
            TrainingSpec(
                loss="mse",
                metrics=ByOutput(
                    names=("a", "b"),
                    entries=(("mae",), ("mse", ClassConfig(class_name="Huber", config={"delta": 2.0}))),
                ),
            ),
        ),
    ],
)
def test_each_form_reaches_the_worker_unchanged(training: dict[str, Any], read: TrainingSpec) -> None:
    values = small_spec(training=training)
    jsonschema.validate(values, json_schema())
    assert load_spec(values).spec.training == read
    border = TypeAdapter(TrainingSpec)
    assert border.validate_json(border.dump_json(read)) == read


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"loss": {"class_nam": "Huber", "config": {}}}, "training.loss.class_nam: unknown key; did you mean 'class_"),
        ({"loss": {}}, "training.loss: expected at least 1 entry"),
        ({"loss": []}, "training.loss: expected at least 1 entry"),
        ({"loss": {"a": None}}, "training.loss: expected a loss for at least one output"),
        ({"loss": {"a": 3}}, "training.loss.a: expected a Keras name, or a mapping with class_name and config; got 3"),
        ({"loss": 3}, "training.loss: expected a Keras name, a mapping with class_name and config, or one for each"),
        (
            {"loss": ["mse"], "loss_weights": [1, 2]},
            "loss_weights: expected a weight for each loss of training.loss, 1; got 2",
        ),
        ({"loss": "mse", "loss_weights": [1]}, "training.loss_weights: expected the same form as training.loss"),
        ({"loss": ["mse"], "loss_weights": {"a": 1}}, "training.loss_weights: expected the same form as training.loss"),
        ({"loss": {"a": "mse"}, "loss_weights": {"a": "x"}}, "training.loss_weights.a: expected a number; got 'x'"),
        (
            {"loss": {"a": "mse", "b": "mae"}, "loss_weights": {"a": 1, "c": 1}},
            "training.loss_weights.c: training.loss has no loss for an output 'c'",
        ),
        (
            {"loss": {"a": "mse", "b": "mae"}, "loss_weights": {"a": 1}},
            "training.loss_weights: expected a weight for each output of training.loss; 'b' has none",
        ),
        ({"loss": "mse", "metrics": {"a": 3}}, "training.metrics.a: expected a Keras name, a mapping with class_name"),
        ({"metrics": ["mae"]}, "training.metrics: needs training.loss"),
    ],
)
def test_each_error_names_its_key(training: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecProblem) as refused:
        load_spec(small_spec(training=training))
    shown = [f"{problem.key}: {problem.message}" for problem in refused.value.problems]
    assert any(message in line for line in shown), shown
