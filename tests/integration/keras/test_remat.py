"""A rematerialised model trains exactly like the plain one: same gradients, same state, same files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from oomtune.errors import TrialCrashed, UsageProblem
from oomtune.keras.remat import rematerialise
from tests.support import remat_models as models


@pytest.fixture(autouse=True)
def _one_policy() -> Iterator[None]:
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_dtype_policy("float32")


def step(model: keras.Model, data: models.Data, how: dict[str, Any] | None) -> list[Any]:
    """Run one step and return loss, gradients, and then all untrained state: batch statistics, random generators."""
    inputs, targets = data

    def compute(inputs: Any, targets: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            errors = tf.nest.map_structure(lambda one, other: tf.reduce_mean((one - other) ** 2), outputs, targets)
            loss = tf.add_n([*tf.nest.flatten(errors), *(tf.cast(loss, tf.float32) for loss in model.losses)])
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    inputs, targets = tf.nest.map_structure(tf.convert_to_tensor, (inputs, targets))
    results = (compute if how is None else tf.function(compute, autograph=False, **how))(inputs, targets)
    return [tf.convert_to_tensor(value).numpy() for value in [*results, *model.non_trainable_variables]]


def both_ways(
    model: keras.Model, data: models.Data, how: dict[str, Any] | None, remat: str = "full"
) -> tuple[list[str], list[Any], list[Any]]:
    """Return the recomputed parts, then one step without and one with recomputation, both from the same state."""
    model(data[0])
    states = [(variable, variable.numpy()) for variable in model.non_trainable_variables]
    plain = step(model, data, how)
    for variable, value in states:
        variable.assign(value)
    account = rematerialise(model, remat)
    again = step(model, data, how)
    return account.names, plain, again


def assert_same(these: list[Any], those: list[Any], tolerance: float = 1e-4) -> None:
    for one, other in zip(these, those, strict=True):
        # A gradient that is exactly zero in theory is noise here, such as that of a bias before a softmax.
        most = max(float(np.max(np.abs(np.float64(other)), initial=0)), 0.1)
        np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=tolerance, atol=tolerance * most)


@pytest.mark.parametrize("kind", models.KINDS)
def test_recomputation_changes_no_gradient_statistic_or_random_state(kind: str) -> None:
    names, plain, again = both_ways(*models.KINDS[kind](), how={})
    assert names
    assert_same(again, plain)


@pytest.mark.parametrize("kind", [models.transformer, models.residual, models.lstms])
def test_recomputation_changes_nothing_under_xla(kind: Callable[[], tuple[keras.Model, models.Data]]) -> None:
    names, plain, again = both_ways(*kind(), how={"jit_compile": True})
    assert names
    assert_same(again, plain)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_recomputation_changes_nothing_in_eager_mode_and_half_precision(precision: str) -> None:
    keras.config.set_dtype_policy(precision)
    _, plain, again = both_ways(*models.transformer(), how=None)
    assert_same(again, plain, tolerance=1e-4 if precision == "float32" else 1e-2)


def test_patterns_choose_layers_by_name() -> None:
    names, plain, again = both_ways(*models.stacked(), how=None, remat="*_1,embed*")
    assert names == ["embedding", "block_1"]
    assert_same(again, plain)


@pytest.mark.parametrize("built", [True, False])
def test_an_unknown_layer_name_is_reported_with_the_nearest_names(built: bool) -> None:
    model, (inputs, _) = models.stacked()
    if built:
        model(inputs)

    def run() -> None:
        rematerialise(model, "blok_0")
        model(inputs)

    with pytest.raises(TrialCrashed, match=r"no layer of the model is called 'blok_0'$") as problem:
        run()
    assert "block_0" in problem.value.hint


def noisy() -> keras.Model:
    return keras.Sequential([keras.Input((8,)), *(models.Noisy() for _ in range(4)), layers.Dense(1)])


@pytest.mark.parametrize("remat", ["full", "noisy*"])
def test_layers_with_hidden_state_run_only_once(remat: str) -> None:
    model = noisy()
    account = rematerialise(model, remat)
    step(model, (models.floats(4, 8), models.floats(4, 1)), how={})
    assert [int(layer.counted) for layer in model.layers[:4]] == [1] * 4
    assert account.names == []
    reason = "no part of this model" if remat == "full" else f"{model.layers[0].name} is not recomputed: it draws"
    assert account.missed().startswith(reason)


@pytest.mark.parametrize("kind", models.TRICKY)
@pytest.mark.parametrize("remat", ["full", "tricky*"])
def test_parts_whose_second_run_would_differ_are_not_recomputed(kind: str, remat: str) -> None:
    """The layers draw random numbers only in training, or keep tensors that others read."""
    model, data = models.TRICKY[kind]()
    account = rematerialise(model, remat)
    model(data[0])  # a call outside training must not decide for training
    before = len(model.losses)
    tf.random.set_seed(3)
    gradients = step(model, data, how=None)
    assert account.names == []
    assert before == 0
    plain, _ = models.TRICKY[kind]()
    plain(data[0])
    for mine, theirs in zip(plain.variables, model.variables, strict=True):
        mine.assign(theirs)
    tf.random.set_seed(3)
    assert_same(gradients, step(plain, data, how=None))


def test_the_trial_run_leaves_the_model_untouched() -> None:
    """Inference does not apply dropout because the parts were examined in training mode."""
    model, (inputs, _) = models.recurrent()
    plain = model(inputs)
    fresh, _ = models.recurrent()
    rematerialise(fresh, "full")
    fresh.build(inputs.shape)
    fresh.set_weights(model.get_weights())
    np.testing.assert_allclose(fresh(inputs), plain, rtol=1e-5)


def test_a_model_is_rematerialised_in_one_way_and_a_wrong_name_can_be_corrected() -> None:
    model, (inputs, _) = models.stacked()
    model(inputs)
    with pytest.raises(TrialCrashed, match="no layer of the model"):
        rematerialise(model, "blok*")
    account = rematerialise(model, "block*")
    assert rematerialise(model, "block*") is account
    with pytest.raises(UsageProblem, match="already rematerialised as 'block\\*'") as problem:
        rematerialise(model, "full")
    assert "again" in problem.value.hint


def test_a_step_that_never_calls_the_model_is_reported() -> None:
    model, (inputs, targets) = models.stacked()
    account = rematerialise(model, "full")
    with tf.GradientTape():
        model.blocks[0](model.embedding(inputs))
    assert "never the model itself" in account.missed()
    step(model, (inputs, targets), how=None)
    assert account.missed() == ""


def test_nothing_is_recomputed_if_nothing_can_be_saved() -> None:
    model, data = keras.Sequential([keras.Input((8,)), layers.Dense(1)]), (models.floats(4, 8), models.floats(4, 1))
    account = rematerialise(model, "full")
    step(model, data, how={})
    assert account.names == []
    assert account.missed() == "no part of this model is worth recomputing"
    assert rematerialise(keras.Sequential([keras.Input((8,)), layers.Dense(1)]), "none").names == []


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras' own, when it saves
def test_a_compiled_model_still_trains_saves_and_prints_the_same_summary(tmp_path: Path) -> None:
    model, (inputs, targets) = models.residual()
    model.compile("adam", "mse")
    shown: list[str] = []
    optimizer, predicted = model.optimizer, model.predict_on_batch(inputs)
    model.summary(print_fn=shown.append)
    rematerialise(model, "full")
    rematerialise(model, "full")
    assert model.optimizer is optimizer
    again: list[str] = []
    model.summary(print_fn=again.append)
    assert again == shown
    np.testing.assert_allclose(model.predict_on_batch(inputs), predicted, rtol=1e-5)
    model.train_on_batch(inputs, targets)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict_on_batch(inputs), model.predict_on_batch(inputs), rtol=1e-5)
