"""Small models of each kind, with the data they train on; every one of them can be cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

RATE = 0.2
Data = tuple[Any, Any]


def floats(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, "float32")


def tokens(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 20, shape, "int32")


def attended(hidden: Any, width: int) -> Any:
    inner = layers.LayerNormalization()(hidden)
    inner = layers.MultiHeadAttention(2, width // 2, dropout=RATE)(inner, inner)
    hidden = layers.Add()([hidden, layers.Dropout(RATE)(inner)])
    inner = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(hidden))
    return hidden + layers.Dropout(RATE)(layers.Dense(width)(inner))


def transformer(blocks: int = 1, width: int = 8, length: int = 12) -> tuple[keras.Model, Data]:
    """Padded tokens, so that a mask goes through all blocks."""
    words = keras.Input((length,), dtype="int32")
    hidden = layers.Embedding(20, width, mask_zero=True)(words)
    for _ in range(blocks):
        hidden = attended(hidden, width)
    score = layers.Dense(1, dtype="float32")(layers.GlobalAveragePooling1D()(hidden))
    return keras.Model(words, score), (tokens(4, length), floats(4, 1))


class Block(layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """Written without `build` and without `training`: Keras has to find both from outside."""

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.before, self.between = layers.LayerNormalization(), layers.LayerNormalization()
        self.attention = layers.MultiHeadAttention(2, width // 2, dropout=RATE)
        self.widened = keras.Sequential([layers.Dense(4 * width, activation="gelu"), layers.Dense(width)])
        self.dropout = layers.Dropout(RATE)

    def call(self, hidden: Any) -> Any:
        inner = self.before(hidden)
        hidden = hidden + self.dropout(self.attention(inner, inner))
        return hidden + self.dropout(self.widened(self.between(hidden)))


class Stacked(keras.Model):  # type: ignore[misc]
    """Blocks in a list, and a loss that one of its layers adds."""

    def __init__(self, blocks: int = 2, width: int = 8) -> None:
        super().__init__()
        self.embedding = layers.Embedding(20, width, name="embedding")
        self.blocks = [
            Block(width, activity_regularizer=keras.regularizers.L2(1e-4), name=f"block_{place}")
            for place in range(blocks)
        ]
        self.score = layers.Dense(1, dtype="float32")

    def call(self, words: Any) -> Any:
        hidden = self.embedding(words)
        for block in self.blocks:
            hidden = block(hidden)
        return self.score(keras.ops.mean(hidden, 1))


def stacked() -> tuple[keras.Model, Data]:
    return Stacked(), (tokens(4, 12), floats(4, 1))


def residual(blocks: int = 2, width: int = 4, size: int = 16, batch: int = 4) -> tuple[keras.Model, Data]:
    """Two stages of residual blocks."""
    image = keras.Input((size, size, 3))
    hidden = layers.Conv2D(width, 3, padding="same")(image)
    for place in range(blocks):
        filters, strides = (width, 1) if place < blocks / 2 else (2 * width, 2 if place == blocks // 2 else 1)
        inner = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(hidden)
        inner = layers.ReLU()(layers.BatchNormalization()(inner))
        inner = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same", use_bias=False)(inner))
        same = hidden.shape == inner.shape
        hidden = layers.ReLU()(inner + (hidden if same else layers.Conv2D(filters, 1, strides=strides)(hidden)))
    score = layers.Dense(1, dtype="float32")(layers.GlobalAveragePooling2D()(hidden))
    return keras.Model(image, score), (floats(batch, size, size, 3), floats(batch, 1))


def recurrent() -> tuple[keras.Model, Data]:
    """Not built before its first step."""
    stack = [layers.GRU(6, return_sequences=True, dropout=RATE) for _ in range(2)]
    model = keras.Sequential([*stack, layers.GlobalAveragePooling1D(), layers.Dense(1, dtype="float32")])
    return model, (floats(4, 6, 6), floats(4, 1))


def lstms(depth: int = 3, width: int = 6, length: int = 8) -> tuple[keras.Model, Data]:
    """A stack that takes padded tokens."""
    stack = [layers.LSTM(width, return_sequences=True, dropout=RATE) for _ in range(depth)]
    ends = [layers.GlobalAveragePooling1D(), layers.Dense(1, dtype="float32")]
    model = keras.Sequential(
        [keras.Input((length,), dtype="int32"), layers.Embedding(20, width, mask_zero=True), *stack, *ends]
    )
    return model, (tokens(4, length), floats(4, 1))


def forked() -> tuple[keras.Model, Data]:
    """Long skips, a model inside the model, and dictionaries at both ends."""
    image, about = keras.Input((16, 16, 3), name="image"), keras.Input((5,), name="about")
    fine = layers.Conv2D(4, 3, padding="same", activation="gelu")(image)
    coarse = layers.Conv2D(8, 3, padding="same", activation="gelu")(layers.MaxPooling2D()(fine))
    inner = keras.Sequential(
        [keras.Input((8, 8, 8)), *(layers.Conv2D(8, 3, padding="same", activation="gelu") for _ in range(6))]
    )
    joined = layers.Concatenate()([fine, layers.UpSampling2D()(inner(coarse))])
    pooled = layers.GlobalAveragePooling2D()(layers.SpatialDropout2D(RATE)(joined))
    both = layers.Concatenate()([pooled, layers.Dense(8, kernel_regularizer="l2")(about)])
    outputs = {"score": layers.Dense(1, dtype="float32")(both), "kind": layers.Dense(3, dtype="float32")(pooled)}
    data = {"image": floats(4, 16, 16, 3), "about": floats(4, 5)}, {"score": floats(4, 1), "kind": floats(4, 3)}
    return keras.Model({"image": image, "about": about}, outputs), data


class Noisy(layers.Layer):  # type: ignore[misc]
    """Random numbers that Keras knows nothing of, and a counter of its own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = layers.Dense(8)
        self.counted = tf.Variable(0, trainable=False)

    def build(self, shape: Any) -> None:
        self.dense.build(shape)

    def call(self, x: Any) -> Any:
        self.counted.assign_add(1)
        return self.dense(tf.nn.dropout(x, RATE))


class FlatConvolutions(keras.Model):  # type: ignore[misc]
    """Plain layers one after the other, no blocks, with code of its own between them."""

    def __init__(self, depth: int = 6, width: int = 4) -> None:
        super().__init__()
        self.convolutions = [layers.Conv2D(width, 3, padding="same", use_bias=False) for _ in range(depth)]
        self.norms = [layers.BatchNormalization() for _ in range(depth)]
        self.relu, self.dropout, self.score = layers.ReLU(), layers.Dropout(RATE), layers.Dense(1, dtype="float32")

    def call(self, image: Any, training: bool = False) -> Any:
        hidden = image
        for place, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            inner = self.dropout(self.relu(norm(convolution(hidden), training=training)))
            hidden = hidden + inner if place % 2 else inner
        return self.score(tf.reduce_mean(hidden, [1, 2]))


def flat_convolutions() -> tuple[keras.Model, Data]:
    return FlatConvolutions(), (floats(4, 8, 8, 3), floats(4, 1))


class FlatLstms(keras.Model):  # type: ignore[misc]
    """A stack of recurrent layers whose states go from one to the next."""

    def __init__(self, depth: int = 4, width: int = 6) -> None:
        super().__init__()
        self.embedding = layers.Embedding(20, width, mask_zero=True)
        self.stack = [layers.LSTM(width, return_sequences=True, return_state=True, dropout=RATE) for _ in range(depth)]
        self.score = layers.Dense(1, dtype="float32")

    def call(self, words: Any) -> Any:
        hidden, states = self.embedding(words), None
        for layer in self.stack:
            hidden, *states = layer(hidden, initial_state=states)
        return self.score(hidden[:, -1])


def flat_lstms() -> tuple[keras.Model, Data]:
    return FlatLstms(), (tokens(4, 6), floats(4, 1))


class DropsInTraining(layers.Layer):  # type: ignore[misc]
    """Draws random numbers that Keras knows nothing of, in training only."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = layers.Dense(32, activation="gelu")

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.dense(x)
        return tf.nn.dropout(x, 0.5) if training else x


class Around(layers.Layer):  # type: ignore[misc]
    """Says nothing of training itself."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = DropsInTraining()

    def call(self, x: Any) -> Any:
        return self.inner(x)


class Keeps(layers.Layer):  # type: ignore[misc]
    """Keeps a tensor that its model reads afterwards."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense, self.back = layers.Dense(32, activation="gelu"), layers.Dense(8)
        self.scores: list[Any] = []

    def call(self, x: Any) -> Any:
        self.scores = [self.dense(x)]
        return self.back(self.scores[0])


class ReadsKept(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.keeping = [Keeps(name=f"tricky_{place}") for place in range(4)]
        self.score = layers.Dense(1)

    def call(self, x: Any) -> Any:
        for layer in self.keeping:
            x = layer(x)
        return self.score(x) + tf.add_n([tf.reduce_mean(layer.scores[0] ** 2) for layer in self.keeping])


def _stack_of(kind: Callable[..., keras.Layer]) -> tuple[keras.Model, Data]:
    wide = [kind(name=f"tricky_{place}") for place in range(4)]
    return keras.Sequential([keras.Input((32,)), *wide, layers.Dense(1)]), (floats(4, 32), floats(4, 1))


def _random_activation(x: Any) -> Any:
    return tf.nn.gelu(x) * tf.random.uniform(tf.shape(x))


TRICKY: dict[str, Callable[[], tuple[keras.Model, Data]]] = {
    "in training": lambda: _stack_of(DropsInTraining),
    "further inside": lambda: _stack_of(Around),
    "in an activation": lambda: _stack_of(lambda name: layers.Dense(32, activation=_random_activation, name=name)),
    "kept": lambda: (ReadsKept(), (floats(4, 8), floats(4, 1))),
}

KINDS: dict[str, Callable[[], tuple[keras.Model, Data]]] = {
    "transformer": transformer,
    "stacked": stacked,
    "residual": residual,
    "recurrent": recurrent,
    "lstms": lstms,
    "forked": forked,
    "flat_convolutions": flat_convolutions,
    "flat_lstms": flat_lstms,
}


def deep_residual() -> keras.Model:
    return residual(blocks=8, width=16, size=32)[0]
