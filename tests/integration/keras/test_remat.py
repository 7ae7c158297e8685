"""A model that computes parts of itself again trains as it would without: same gradients, same state, same files."""

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
    """Loss, gradients, and afterwards all that is not trained: batch statistics, states of random generators."""
    inputs, targets = data

    def taught(inputs: Any, targets: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            errors = tf.nest.map_structure(lambda one, other: tf.reduce_mean((one - other) ** 2), outputs, targets)
            loss = tf.add_n([*tf.nest.flatten(errors), *(tf.cast(loss, tf.float32) for loss in model.losses)])
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    inputs, targets = tf.nest.map_structure(tf.convert_to_tensor, (inputs, targets))
    found = (taught if how is None else tf.function(taught, autograph=False, **how))(inputs, targets)
    return [tf.convert_to_tensor(value).numpy() for value in [*found, *model.non_trainable_variables]]


def both_ways(
    model: keras.Model, data: models.Data, how: dict[str, Any] | None, remat: str = "full"
) -> tuple[list[str], list[Any], list[Any]]:
    """What is computed again, and a step without that and with it, both from the same state."""
    model(data[0])
    states = [(variable, variable.numpy()) for variable in model.non_trainable_variables]
    plain = step(model, data, how)
    for variable, value in states:
        variable.assign(value)
    done = rematerialise(model, remat)
    again = step(model, data, how)
    return done.names, plain, again


def assert_same(these: list[Any], those: list[Any], tolerance: float = 1e-4) -> None:
    for one, other in zip(these, those, strict=True):
        # What is exactly zero to a mathematician is noise here: a bias that softmax does not see.
        most = max(float(np.max(np.abs(np.float64(other)), initial=0)), 0.1)
        np.testing.assert_allclose(np.float64(one), np.float64(other), rtol=tolerance, atol=tolerance * most)


@pytest.mark.parametrize("kind", models.KINDS)
def test_gradients_statistics_and_random_states_are_those_of_one_pass(kind: str) -> None:
    names, plain, again = both_ways(*models.KINDS[kind](), how={})
    assert names
    assert_same(again, plain)


@pytest.mark.parametrize("kind", [models.transformer, models.residual, models.lstms])
def test_so_they_are_with_xla(kind: Callable[[], tuple[keras.Model, models.Data]]) -> None:
    names, plain, again = both_ways(*kind(), how={"jit_compile": True})
    assert names
    assert_same(again, plain)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_so_they_are_without_a_graph_and_in_half_precision(precision: str) -> None:
    keras.config.set_dtype_policy(precision)
    _, plain, again = both_ways(*models.transformer(), how=None)
    assert_same(again, plain, tolerance=1e-4 if precision == "float32" else 1e-2)


def test_layers_are_chosen_by_name() -> None:
    names, plain, again = both_ways(*models.stacked(), how=None, remat="*_1,embed*")
    assert names == ["embedding", "block_1"]
    assert_same(again, plain)


@pytest.mark.parametrize("built", [True, False])
def test_a_name_that_no_layer_has_is_said_with_the_nearest(built: bool) -> None:
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
def test_what_keeps_state_of_its_own_is_not_computed_twice(remat: str) -> None:
    model = noisy()
    done = rematerialise(model, remat)
    step(model, (models.floats(4, 8), models.floats(4, 1)), how={})
    assert [int(layer.counted) for layer in model.layers[:4]] == [1] * 4
    assert done.names == []
    said = "nothing here is worth" if remat == "full" else f"{model.layers[0].name} is not computed again: it draws"
    assert done.missed().startswith(said)


@pytest.mark.parametrize("kind", models.TRICKY)
@pytest.mark.parametrize("remat", ["full", "tricky*"])
def test_gradients_stay_right_where_a_second_run_would_go_another_way(kind: str, remat: str) -> None:
    """Random numbers in training only, kept tensors that others read: of these no part may be computed again."""
    model, data = models.TRICKY[kind]()
    done = rematerialise(model, remat)
    model(data[0])  # what it does outside of training says nothing about training
    before = len(model.losses)
    tf.random.set_seed(3)
    found = step(model, data, how=None)
    assert done.names == []
    assert before == 0
    plain, _ = models.TRICKY[kind]()
    plain(data[0])
    for mine, theirs in zip(plain.variables, model.variables, strict=True):
        mine.assign(theirs)
    tf.random.set_seed(3)
    assert_same(found, step(plain, data, how=None))


def test_a_look_leaves_the_model_as_it_found_it() -> None:
    """A model that is not trained does not begin to drop out because its parts were looked at in training."""
    model, (inputs, _) = models.recurrent()
    plain = model(inputs)
    fresh, _ = models.recurrent()
    rematerialise(fresh, "full")
    fresh.build(inputs.shape)
    fresh.set_weights(model.get_weights())
    np.testing.assert_allclose(fresh(inputs), plain, rtol=1e-5)


def test_it_is_asked_for_once_in_one_way_and_a_wrong_name_may_be_put_right() -> None:
    model, (inputs, _) = models.stacked()
    model(inputs)
    with pytest.raises(TrialCrashed, match="no layer of the model"):
        rematerialise(model, "blok*")
    done = rematerialise(model, "block*")
    assert rematerialise(model, "block*") is done
    with pytest.raises(UsageProblem, match="already rematerialised as 'block\\*'") as problem:
        rematerialise(model, "full")
    assert "anew" in problem.value.hint


def test_a_step_that_never_runs_the_model_is_said_to_have_nothing_computed_again() -> None:
    model, (inputs, targets) = models.stacked()
    done = rematerialise(model, "full")
    with tf.GradientTape():
        model.blocks[0](model.embedding(inputs))
    assert "never the model itself" in done.missed()
    step(model, (inputs, targets), how=None)
    assert done.missed() == ""


def test_nothing_is_done_where_nothing_can_be_saved() -> None:
    model, data = keras.Sequential([keras.Input((8,)), layers.Dense(1)]), (models.floats(4, 8), models.floats(4, 1))
    done = rematerialise(model, "full")
    step(model, data, how={})
    assert done.names == []
    assert done.missed() == "nothing here is worth computing again"
    assert rematerialise(keras.Sequential([keras.Input((8,)), layers.Dense(1)]), "none").names == []


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras' own, when it saves
def test_a_compiled_model_trains_saves_and_shows_itself_as_before(tmp_path: Path) -> None:
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
