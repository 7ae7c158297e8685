"""Losses, metrics and targets of several outputs: valid ones train, others are refused beforehand."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

from oomtune.domain import Candidate, Search
from oomtune.errors import TrialCrashed
from oomtune.worker.build.compiling import check_outputs, compile_model
from tests.support.specs import small_work_order

SPARSE = {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}
BOTH = {"kind": tf.zeros(2, "int32"), "area": tf.zeros((2, 1))}
AT = "dataset.synthetic.targets"
# Keras warns about an output without a loss.
pytestmark = pytest.mark.filterwarnings("ignore:Gradients do not exist for variables")


class Own(keras.Model):  # type: ignore[misc]  # Keras ships no types
    """Two outputs that are not visible before the first call."""

    def __init__(self, form: type) -> None:
        super().__init__()
        self.form, self.kind, self.area = form, keras.layers.Dense(3), keras.layers.Dense(1)

    def call(self, given: Any) -> Any:
        kind, area = self.kind(given), self.area(given)
        return {"kind": kind, "area": area} if self.form is dict else [kind, area]


def two_outputs(form: str) -> keras.Model:
    """Return outputs of 3 classes and of one number. `area` is the second output, but first in the alphabet."""
    if form in ("own dict", "own list"):
        return Own(dict if form == "own dict" else list)
    given = keras.Input((4,))
    kind, area = keras.layers.Dense(3, name="kind")(given), keras.layers.Dense(1, name="area")(given)
    return keras.Model(given, {"kind": kind, "area": area} if form == "dict" else [kind, area])


def refusal(network: keras.Model, targets: Any, **training: Any) -> str:
    """Return the message and hint before the first step. If there is none, run the step."""
    trial = Search(candidate=Candidate(batch_size=2))
    order = small_work_order(trial, training={"optimizer": "sgd", "run_eagerly": True, **training})
    compile_model(network, order, trial.candidate)
    given = tf.zeros((2, 4))
    specs = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), targets)
    try:
        check_outputs(order.training, network, network(given), specs, AT)
    except TrialCrashed as error:
        return f"{error} | {error.hint}"
    assert network.train_on_batch(given, targets) is not None
    return ""


@pytest.mark.parametrize("form", ["dict", "list", "own dict", "own list"])
@pytest.mark.parametrize(
    ("training", "refused"),
    [
        ({"loss": {"kind": SPARSE, "area": "mse"}, "loss_weights": {"area": 2, "kind": 1}}, {"own list": "have no na"}),
        ({"loss": {"kind": SPARSE, "area": None}}, {"own list": "the model's outputs have no names | give a list"}),
        (
            {"loss": {"kind": SPARSE}},
            {
                "own list": "no names",
                "list": "training.loss has no entry for the output 'area' | add one, or area: null",
            },
        ),
        (
            {"loss": {"kind": SPARSE, "aera": "mse"}},
            {"own list": "no names"}
            | dict.fromkeys(("dict", "list", "own dict"), "training.loss.aera: the model has no"),
        ),
        (
            {"loss": [SPARSE, "mse"], "loss_weights": [1, 2], "metrics": [["accuracy"], None]},
            dict.fromkeys(
                ("dict", "own dict"), "training.loss is a list, but the model's outputs have names and no order"
            )
            | {"own list": f"{AT} has 'kind', 'area', but the model's outputs have no names | return a dict with"},
        ),
        (
            {
                "loss": {"kind": SPARSE, "area": "mse"},
                "metrics": {"area": "mae", "kind": ["accuracy", "sparse_top_k_categorical_accuracy"]},
            },
            {"own list": "no names"},
        ),
        (
            {"loss": {"kind": SPARSE, "area": "mse"}, "metrics": {"what": "mae"}},
            {"own list": "no names"}
            | dict.fromkeys(("dict", "list", "own dict"), "training.metrics.what: the model has"),
        ),
        (
            {"loss": {"kind": SPARSE, "area": "mse"}, "metrics": ["mae"]},
            dict.fromkeys(
                ("dict", "own dict"), "training.metrics is a list, but the model's outputs have names and no order"
            )
            | {
                "own list": "no names",
                "list": "training.metrics is a list of 1, but the model has 2 outputs: 'kind', 'a",
            },
        ),
    ],
)
def test_losses_and_metrics_train_if_they_match_the_outputs_and_are_refused_otherwise(
    form: str, training: dict[str, Any], refused: dict[str, str]
) -> None:
    message = refusal(two_outputs(form), BOTH, **training)
    assert refused.get(form, "") in message
    assert bool(message) == (form in refused), message


def test_outputs_without_names_train_on_lists() -> None:
    assert refusal(two_outputs("own list"), list(BOTH.values()), loss=[SPARSE, "mse"], metrics=[None, ["mae"]]) == ""
    assert "a list of 3, but the model has 2 outputs | give one entry per output" in refusal(
        two_outputs("own list"), list(BOTH.values()), loss=[SPARSE, "mse", "mse"]
    )


@pytest.mark.parametrize("form", ["dict", "list", "own dict"])
def test_each_output_with_a_loss_needs_a_target(form: str) -> None:
    kind_alone, losses = {"kind": BOTH["kind"]}, {"kind": SPARSE, "area": "mse"}
    message = refusal(two_outputs(form), kind_alone, loss=losses)
    assert f"{AT} has 'kind', but nothing for the model's output 'area' | give the targets of each output by" in message
    assert f"{AT} is one tensor, but the model has 2 outputs: 'kind', 'area'" in refusal(
        two_outputs(form), BOTH["area"], loss="mse"
    )
    without = refusal(two_outputs(form), kind_alone, loss={"kind": SPARSE, "area": None})
    assert bool(without) == (form == "list"), "for a list Keras wants all targets"


def test_a_single_output_needs_no_name_and_a_custom_step_is_not_checked() -> None:
    alone = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    assert refusal(alone, BOTH["area"], loss=["mse", "mae"], metrics=["mae", "mse"]) == "", "their sum is trained"
    assert "is a mapping by output, but the model has only one output | leave out the name" in refusal(
        alone, BOTH["area"], loss={"area": "mse"}
    )
    assert refusal(_Freely(dict), BOTH["area"], loss={"anything": "mse"}) == ""


class _Freely(Own):
    def train_step(self, data: Any) -> Any:
        given, targets, _ = data
        return {"loss": tf.reduce_mean(self(given)["area"] - targets)}
