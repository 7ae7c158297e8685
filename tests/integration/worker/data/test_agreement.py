"""Data that does not suit the model is reported in terms of the spec, with the wrong input or output."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from oomtune.domain import (
    Budget,
    Candidate,
    DatasetSpec,
    JsonlData,
    Layers,
    NpyData,
    PythonData,
    Scan,
    Search,
    TrainingSpec,
    TrialSettings,
    WorkOrder,
)
from oomtune.errors import TrialCrashed
from oomtune.worker.data import agreement
from tests.support.specs import CPU

JSONL = JsonlData(paths=("a.jsonl",), inputs="x", targets="y")
NPY = NpyData(inputs={"left": ("l.npy",), "right": ("r.npy",)}, targets={"one": ("1.npy",)})
SPARSE = "sparse_categorical_crossentropy"


def model(loss: Any = SPARSE, *, names: tuple[str, ...] = ("one",), as_dict: bool = False) -> keras.Model:
    """Return a model with two inputs of tokens, each embedded, and outputs of 3 and 2 classes."""
    inputs = {name: keras.Input((4,), dtype="int32", name=name) for name in ("left", "right")}
    embedded = [keras.layers.Embedding(rows, 2)(tensor) for rows, tensor in zip((10, 20), inputs.values(), strict=True)]
    read = keras.layers.Flatten()(keras.layers.Concatenate()(embedded))
    outputs = {name: keras.layers.Dense(3 - at, name=f"{name}_out")(read) for at, name in enumerate(names)}
    network = keras.Model(
        inputs, outputs if as_dict else list(outputs.values()) if len(outputs) > 1 else outputs[names[0]]
    )
    network.compile("sgd", loss)
    return network


def refusal(
    network: keras.Model,
    targets: Any,
    ranges: dict[str, tuple[int, int]],
    data: DatasetSpec = JSONL,
    inputs: Any = None,
    *,
    fractions: dict[str, float] | None = None,
    places: dict[str, tuple[str, str]] | None = None,
    batch_size: int = 2,
    run_eagerly: bool = False,
    weights: Any = None,
) -> str:
    """Return the message and hint for these batches, empty if they suit the model."""
    order = WorkOrder(
        trial=Search(candidate=Candidate(batch_size=batch_size)),
        folder="/here",
        model=Layers(layers=()),
        dataset=data,
        training=TrainingSpec(run_eagerly=run_eagerly),
        settings=TrialSettings(),
        device=CPU,
        budget=Budget(limit_bytes=1),
        scan=Scan(samples=2, read=2, ranges=ranges, fractions=fractions or {}, places=places or {}),
    )
    if inputs is None:
        inputs = {name: np.zeros((2, 4), "int32") for name in ("left", "right")}
    try:
        sides = (inputs, targets) if weights is None else (inputs, targets, weights)
        agreement.check(order, network, tf.data.Dataset.from_tensor_slices(sides).batch(2))
    except TrialCrashed as error:
        return f"{error} | {error.hint}"
    return ""


LABELS = np.zeros(2, "int32")


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ({"inputs.left": (0, 9), "inputs.right": (0, 19), "targets.": (0, 2)}, ""),
        ({"inputs.left": (0, 10)}, "/here/a.jsonl: dataset.jsonl.inputs ('left') has tokens up to 10, but the"),
        ({"inputs.right": (0, 20)}, "dataset.jsonl.inputs ('right') has tokens up to 20, but the embedding"),
        ({"inputs.right": (-1, 5)}, "dataset.jsonl.inputs ('right') has tokens down to -1, but the embedding"),
        ({"targets.": (-1, 2)}, "/here/a.jsonl: dataset.jsonl.targets has classes down to -1, but the model has 3"),
        ({"targets.": (0, 3)}, "dataset.jsonl.targets has classes up to 3, but the model has 3 classes, 0 to 2"),
    ],
)
def test_tokens_and_labels_out_of_range_are_reported_with_file_and_part(
    ranges: dict[str, tuple[int, int]], expected: str
) -> None:
    message = refusal(model(), LABELS, ranges)
    assert expected in message
    assert bool(expected) == bool(message)


@pytest.mark.parametrize(("labels", "place"), [((-1, 2), "/here/b.jsonl:7"), ((0, 3), "/here/c.jsonl:2")])
def test_a_label_out_of_range_is_reported_with_its_line(labels: tuple[int, int], place: str) -> None:
    places = {"targets.": ("/here/b.jsonl:7", "/here/c.jsonl:2")}
    assert refusal(model(), LABELS, {"targets.": labels}, places=places).startswith(
        f"{place}: dataset.jsonl.targets has"
    )


def test_a_model_with_one_number_per_sample_has_no_classes() -> None:
    number = keras.Input((4,))
    network = keras.Model(number, keras.ops.max(number, axis=-1))
    network.compile("sgd", SPARSE)
    message = refusal(network, LABELS, {"targets.": (0, 1)}, inputs=np.zeros((2, 4), "float32"))
    assert "the model outputs one number per sample, but the loss needs one for each class" in message


def test_labels_that_the_loss_ignores_may_have_any_value() -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    assert refusal(model(loss), LABELS, {"targets.": (-1, 2)}) == ""
    assert "labels down to -1, but the loss expects labels 0 and 1" in refusal(
        model("binary_crossentropy"), np.zeros((2, 3), "int32"), {"targets.": (-1, 1)}
    )


def test_fractions_are_refused_as_classes() -> None:
    floats = np.zeros(2, "float32")
    assert "dataset.jsonl.targets has classes up to 3, but the model has 3 classes, 0 to 2" in refusal(
        model(), floats, {"targets.": (0, 3)}
    )
    message = refusal(model(), floats, {}, fractions={"targets.": 0.5})
    assert "/here/a.jsonl: dataset.jsonl.targets has the class 0.5, but classes are whole numbers from 0 up" in message
    soft = model("binary_crossentropy")
    assert refusal(soft, np.zeros((2, 3), "float32"), {}, fractions={"targets.": 0.5}) == ""


def test_a_model_built_for_one_batch_size_reports_that_size() -> None:
    inner = keras.Input(batch_shape=(16, 4))
    stateful = keras.Model(inner, keras.layers.Dense(3)(inner))
    stateful.compile("sgd", SPARSE)
    vectors = np.zeros((2, 4), "float32")
    assert refusal(stateful, LABELS, {}, inputs=vectors, batch_size=16) == ""
    message = refusal(stateful, LABELS, {}, inputs=vectors, batch_size=2)
    assert message == "model.layers: the model only takes batches of 16, not 2 | set search.batch_size: 16"


class Own(keras.Model):  # type: ignore[misc]  # Keras ships no types
    """A model without visible inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = keras.layers.Dense(3), keras.layers.Dense(1)

    def call(self, given: Any) -> Any:
        read = self.one(keras.ops.concatenate([given["left"], given["right"]], axis=-1))
        return {"kind": read, "score": self.other(read)}


def own() -> keras.Model:
    network = Own()
    network.compile("sgd", {"kind": SPARSE, "score": "mse"})
    return network


def test_a_model_without_visible_inputs_is_checked_by_calling_it() -> None:
    targets = {"kind": LABELS, "score": np.zeros((2, 1), "float32")}
    inputs = {name: np.zeros((2, 4), "float32") for name in ("left", "right")}
    assert refusal(own(), targets, {"targets.kind": (0, 2)}, inputs=inputs) == ""
    assert "dataset.jsonl.targets ('kind') has classes up to 3, but the model has 3 classes, 0 to 2" in refusal(
        own(), targets, {"targets.kind": (0, 3)}, inputs=inputs
    )
    wide = targets | {"score": np.zeros((2, 7), "float32")}
    message = refusal(own(), wide, {}, inputs=inputs)
    assert "/here/a.jsonl: dataset.jsonl.targets ('score') has samples of shape [7], but the loss" in message
    message = refusal(own(), targets, {}, inputs={"left": inputs["left"]})
    assert (
        "/here/a.jsonl: dataset.jsonl.inputs has 'left' of shape [4], but the model can't be called with it" in message
    )
    assert "KeyError: right" in message
    assert refusal(own(), targets, {}, inputs={"left": inputs["left"]}, run_eagerly=True) == "", (
        "it may not compile to a graph"
    )


class Branches(keras.Model):  # type: ignore[misc]  # Keras ships no types
    def call(self, given: Any) -> Any:
        return given if tf.reduce_sum(given) > 0 else -given


def test_a_model_that_branches_on_values_gets_a_hint() -> None:
    network = Branches()
    network.compile("sgd", "mse")
    vectors = np.zeros((2, 4), "float32")
    message = refusal(network, vectors, {}, inputs=vectors)
    assert (
        "the model's call can't be compiled to a graph: Using a symbolic `tf.Tensor` as a Python `bool` is not"
        in message
    )
    assert "set training.run_eagerly: true" in message
    assert refusal(network, vectors, {}, inputs=vectors, run_eagerly=True) == ""


@pytest.mark.parametrize("as_dict", [True, False])
@pytest.mark.parametrize("several", [True, False])
def test_each_output_is_checked_against_its_own_targets(as_dict: bool, several: bool) -> None:
    names = ("zeta", "alpha") if as_dict else ("zeta_out", "alpha_out")
    one, other = names
    loss: Any = dict.fromkeys(names, SPARSE) if several else SPARSE
    network = model(loss, names=("zeta", "alpha"), as_dict=as_dict)
    targets = dict.fromkeys(names, LABELS)
    assert refusal(network, targets, {f"targets.{one}": (0, 2), f"targets.{other}": (0, 1)}) == ""
    assert f"targets ({other!r}) has classes up to 2, but the model has 2 classes, 0 to 1" in refusal(
        network, targets, {f"targets.{one}": (0, 2), f"targets.{other}": (0, 2)}
    )
    assert f"targets ({one!r}) has samples of shape [7]" in refusal(
        network, targets | {one: np.zeros((2, 7), "int32")}, {}
    )


def test_inputs_and_targets_in_tuples_are_matched_by_place() -> None:
    tokens, data = np.zeros((2, 4), "int32"), PythonData(function="own:load")
    network = model([SPARSE, SPARSE], names=("one", "other"))
    fits = {"inputs.0": (0, 9), "inputs.1": (0, 19), "targets.0": (0, 2), "targets.1": (0, 1)}

    def message(ranges: dict[str, tuple[int, int]], inputs: Any = (tokens, tokens)) -> str:
        return refusal(network, (LABELS, LABELS), fits | ranges, data, inputs)

    assert message({}) == ""
    assert "dataset.python (inputs[0]) has tokens up to 10, but the embedding" in message({"inputs.0": (0, 10)})
    assert "dataset.python (targets[1]) has classes up to 2, but the model has 2" in message({"targets.1": (0, 2)})
    assert "dataset.python (inputs[1]) has samples of shape [5], but the model takes [4]" in message(
        {}, (tokens, np.zeros((2, 5), "int32"))
    )
    assert "dataset.python is 3 tensors, but the model has 2 inputs: 'left', 'right'" in message({}, (tokens,) * 3)
    assert "dataset.python is one tensor, but the model has 2 inputs" in message({}, tokens)


def test_weights_must_be_one_number_if_the_loss_is() -> None:
    for shape in ((2,), (2, 1)):
        assert refusal(model(), LABELS, {}, weights=np.zeros(shape, "float32")) == ""
    message = refusal(model(), LABELS, {}, PythonData(function="own:load"), weights=np.zeros((2, 5), "float32"))
    assert message.startswith("dataset.python has weights of shape [5], but the loss is one number per sample | ")


def test_the_file_of_the_wrong_input_is_reported() -> None:
    message = refusal(model(), {"one": LABELS}, {"inputs.right": (0, 99)}, NPY)
    assert message.startswith("/here/r.npy: dataset.npy.inputs ('right') has tokens up to 99")


@pytest.mark.parametrize("targets", [LABELS, {"out": LABELS}])
def test_a_sequential_model_is_checked_against_its_targets(targets: Any) -> None:
    stack = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    stack.compile("sgd", SPARSE)
    part = "targets.out" if isinstance(targets, dict) else "targets."
    vectors = np.zeros((2, 4), "float32")
    assert refusal(stack, targets, {part: (0, 2)}, inputs=vectors) == ""
    assert "has classes up to 3, but the model has 3 classes, 0 to 2" in refusal(
        stack, targets, {part: (0, 3)}, inputs=vectors
    )
