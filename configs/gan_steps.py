"""One training step of a small GAN, with a gradient tape and an optimizer for each network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

_NOISE = 64


def make(batch_size: int, width: int) -> tuple[Callable[..., dict[str, tf.Tensor]], Callable[[], tf.Tensor]]:
    """Return the training step and the validation step that a probe runs."""
    generator, critic = _generator(width), _critic(width)
    generator_optimizer, critic_optimizer = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)
    entropy = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function  # type: ignore[untyped-decorator]
    def step(real: tf.Tensor, _targets: tf.Tensor) -> dict[str, tf.Tensor]:
        noise = tf.random.normal((tf.shape(real)[0], _NOISE))
        with tf.GradientTape() as generator_tape, tf.GradientTape() as critic_tape:
            made = generator(noise, training=True)
            on_real, on_made = critic(real, training=True), critic(made, training=True)
            generator_loss = entropy(tf.ones_like(on_made), on_made)
            critic_loss = entropy(tf.ones_like(on_real), on_real) + entropy(tf.zeros_like(on_made), on_made)
        _update(generator_optimizer, generator, generator_tape.gradient(generator_loss, generator.trainable_variables))
        _update(critic_optimizer, critic, critic_tape.gradient(critic_loss, critic.trainable_variables))
        return {"generator_loss": generator_loss, "critic_loss": critic_loss}

    @tf.function  # type: ignore[untyped-decorator]
    def validate() -> tf.Tensor:
        return tf.reduce_mean(critic(generator(tf.random.normal((batch_size, _NOISE)))))

    return step, validate


def _update(optimizer: keras.Optimizer, model: keras.Model, gradients: Any) -> None:
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


def _generator(width: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((_NOISE,)),
            keras.layers.Dense(8 * 8 * width),
            keras.layers.Reshape((8, 8, width)),
            keras.layers.Conv2DTranspose(width, 4, strides=2, padding="same", activation="relu"),
            keras.layers.Conv2DTranspose(3, 4, strides=2, padding="same", activation="sigmoid", dtype="float32"),
        ]
    )


def _critic(width: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Conv2D(width, 4, strides=2, padding="same", activation="leaky_relu"),
            keras.layers.Conv2D(2 * width, 4, strides=2, padding="same", activation="leaky_relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
