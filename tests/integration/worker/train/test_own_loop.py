"""Training with the user's own step function, which a factory makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomtune.domain import Kind, Purpose
from oomtune.trials.worker_host import WorkerHost
from tests.support.leaky_models import RunConfirm
from tests.support.own_training import run_trial

GAN = """\
import keras
import tensorflow as tf

def make(batch_size, precision, width=64):
    generator = keras.Sequential([keras.Input((16,)), keras.layers.Dense(width, activation="relu"),
                                  keras.layers.Dense(32, dtype="float32")])
    critic = keras.Sequential([keras.Input((32,)), keras.layers.Dense(width, activation="relu"),
                               keras.layers.Dense(1, dtype="float32")])
    ours, theirs = keras.optimizers.Adam(1e-3), keras.optimizers.SGD(1e-3)
    assert keras.config.dtype_policy().name == precision

    @tf.function
    def step(real, _targets):
        noise = tf.random.normal((batch_size, 16))
        with tf.GradientTape() as tape, tf.GradientTape() as other:
            made = generator(noise, training=True)
            loss = -tf.reduce_mean(critic(made, training=True))
            critic_loss = tf.reduce_mean(critic(made)) - tf.reduce_mean(critic(real, training=True))
        ours.apply_gradients(zip(tape.gradient(loss, generator.trainable_variables), generator.trainable_variables))
        theirs.apply_gradients(zip(other.gradient(critic_loss, critic.trainable_variables), critic.trainable_variables))
        return {"generator": loss, "critic": critic_loss}

    def validate():
        return tf.reduce_mean(generator(tf.random.normal((batch_size, 16))))

    return step, validate
"""


def test_a_step_with_two_optimizers_is_confirmed_validated_and_climbed(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "gan.py").write_text(GAN)
    model = {"train_step": "gan:make", "args": {"width": 128}}
    data = {"synthetic": {"inputs": {"shape": [32]}, "targets": {"shape": [1]}}}
    mixed = {"precision": ["mixed_bfloat16"]}
    confirmed = run_trial(host, tmp_path, model, purpose=Purpose.CONFIRM, dataset=data, search=mixed)
    assert (confirmed.kind, confirmed.steps_run, confirmed.validated) == (Kind.FITS, 6, True), confirmed.error
    climbed = run_trial(host, tmp_path, model, purpose=Purpose.CALIBRATE, dataset=data)
    assert [point.batch_size for point in climbed.points][:2] == [4, 16], climbed.error
    assert all(point.peak_bytes > 0 for point in climbed.points)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def make(): return 3", "gan:make returned int, not a step"),
        ("def make():\n    def step(batch): ...\n    return step", "no dataset to fill them"),
        ("def make(size): ...", "gan:make needs 'size'"),
        ("import sys; sys.exit(3)", "importing 'gan' ended the process: sys.exit(3)"),
        ("def make():\n    return lambda: float('nan')", "the loss is nan at step 1"),
        ("def make():\n    return lambda a, b, c, d: 0.0", "model.train_step: the step of gan:make takes 4 arguments"),
    ],
)
def test_a_broken_factory_is_reported(host: WorkerHost, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "gan.py").write_text(text)
    outcome = run_trial(host, tmp_path, {"train_step": "gan:make"})
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert message in outcome.error.message


def test_a_step_that_does_not_take_the_data_is_reported_with_the_shapes(host: WorkerHost, tmp_path: Path) -> None:
    (tmp_path / "gan.py").write_text(GAN)
    data = {"synthetic": {"inputs": {"shape": [5]}, "targets": {"shape": [1]}}}
    outcome = run_trial(host, tmp_path, {"train_step": "gan:make"}, dataset=data)
    assert outcome.kind is Kind.CRASH
    assert outcome.error is not None
    assert outcome.error.message.startswith("model.train_step: gan:make failed in its first step: ValueError: Input 0")
    assert "\n" not in outcome.error.message
    assert "dataset.synthetic.inputs has samples of shape [5]" in outcome.error.hint
    assert 'gan.py", line' in outcome.error.traceback
    assert "site-packages" not in outcome.error.traceback


def test_the_users_own_step_has_two_epochs_with_validation_after_each(confirm: RunConfirm) -> None:
    outcome = confirm({"train_step": "leaky_models:counted_epochs"}, training=None, trial__confirm_steps=4)
    assert outcome.kind is Kind.CRASH, "the second validation raises the order of the calls"
    assert outcome.error is not None
    assert "ran tttvttv" in outcome.error.message
