"""Several inputs in a tuple or dict, and sample weights, reach a trial as they reach `Model.fit`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import oomtune
import oomtune.keras
from tests.support.cli import Cli

OWN = """
import keras
import numpy as np
import tensorflow as tf

TOKENS, LABEL, WEIGHT = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float32)


def samples(make):
    def each():
        chance = np.random.default_rng(0)
        for number in range(120):
            sizes = chance.integers(2, 9, 2) if number % 4 else (40, 30)
            yield make(*(chance.integers(1, 50, size).astype("int32") for size in sizes), number % 2, 0.5 + number % 3)
    return each


def in_a_tuple():
    return tf.data.Dataset.from_generator(
        samples(lambda question, answer, label, weight: ((question, answer), label, weight)),
        output_signature=((TOKENS, TOKENS), LABEL, WEIGHT),
    )


def in_a_dict():
    return in_a_tuple().map(lambda pair, label, weight: ({"question": pair[0], "answer": pair[1]}, label))


def arrays():
    tokens = np.ones((120, 40), "int32")
    return [tokens, tokens], np.arange(120) % 2, np.ones(120, "float32")


class Weighted(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if sample_weight is None:
            raise RuntimeError("the weights of samples did not reach the loss")
        return super().compute_loss(x, y, y_pred, sample_weight, training)


def build(kind="Weighted"):
    pair = [keras.Input((None,), dtype="int32", name=name) for name in ("question", "answer")]
    embedding, pooling = keras.layers.Embedding(50, 8), keras.layers.GlobalMaxPooling1D()
    read = keras.layers.Concatenate()([pooling(embedding(tokens)) for tokens in pair])
    return {"Weighted": Weighted, "Model": keras.Model}[kind](pair, keras.layers.Dense(2)(read))


def three_sides():
    model, loss = build("Model"), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.optimizer = keras.optimizers.SGD()
    def step(pair, labels, weights):
        with tf.GradientTape() as tape:
            value = loss(labels, model(pair), sample_weight=weights)
        model.optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        return value
    return step


def any_sides():
    step = three_sides()
    return lambda *batch: step(*batch)
"""


@pytest.fixture
def probe(cli: Cli, spec_file: Callable[..., Path]) -> Callable[..., dict[str, object]]:
    (cli.folder / "own.py").write_text(OWN)

    def run(data: str, model: dict[str, object], **search: object) -> dict[str, object]:
        loss = {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": True}}
        spec = spec_file(
            model=model,
            dataset={"python": f"own:{data}"},
            training=None if "train_step" in model else {"optimizer": "sgd", "loss": loss},
            search={"batch_size": [2], **search},
            trial__confirm_steps=2,
        )
        ran = cli("probe", spec, "--json", "--force")
        assert ran.code == 0, ran.err
        return ran.document

    return run


def test_several_inputs_and_weights_train_in_buckets(cli: Cli, probe: Callable[..., dict[str, object]]) -> None:
    probe("in_a_tuple", {"builder": "own:build"}, sequence_length={"percentiles": [100]})
    tuned = oomtune.load_tuned(cli.folder / "model.tuned.yaml")
    assert tuned.bucket_boundaries[-1] == 40, "a sample is as long as the longest of its inputs"
    assert len(tuned.bucket_boundaries) > 1

    def samples() -> object:
        for size in (40, 3, 2):
            yield (np.ones(size, "int32"), np.ones(2, "int32")), np.int32(1), np.float32(0.5)

    tokens, number = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)
    dataset = tf.data.Dataset.from_generator(
        samples, output_signature=((tokens, tokens), number, tf.TensorSpec([], tf.float32))
    )
    shapes = {
        tuple(question.shape): tuple(answer.shape)
        for (question, answer), _, _ in oomtune.keras.bucketed(dataset, tuned)
    }
    short = tuned.bucket_boundaries[0]
    assert shapes == {(1, 40): (1, 40), (2, short): (2, short)}


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ("in_a_dict", {"builder": "own:build", "args": {"kind": "Model"}}),
        ("arrays", {"builder": "own:build"}),
        ("in_a_tuple", {"train_step": "own:three_sides"}),
        ("in_a_tuple", {"train_step": "own:any_sides"}),
    ],
)
def test_several_inputs_train_as_arrays_in_a_dict_and_in_a_custom_step(
    probe: Callable[..., dict[str, object]], data: str, model: dict[str, object]
) -> None:
    assert probe(data, model)["dataset"]["samples"] == 120  # type: ignore[index]
