"""Try a batch size as people do by hand: with a plain Keras script that dies when memory runs out.

These are the specs in `configs/` and `tabular.yaml` as scripts. TensorFlow reads the limit from the environment, and
waits as it does by default before it reports that memory ran out.
"""

from __future__ import annotations

import sys

import keras
import numpy as np
from keras import layers
from transformer_model import build

_CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def cnn(batch: int) -> None:
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), _CROSSENTROPY, metrics=["accuracy"])
    random = np.random.default_rng(0)
    images, labels = random.random((batch, 32, 32, 3), np.float32), random.integers(0, 10, batch)
    model.fit(images, labels, batch_size=batch, epochs=4, verbose=0)


def lstm(batch: int) -> None:
    model = keras.Sequential(
        [
            keras.Input((64,), dtype="int32"),
            layers.Embedding(5000, 64),
            layers.LSTM(64, return_sequences=True),
            layers.LSTM(64),
            layers.Dense(2),
        ]
    )
    model.compile("adam", _CROSSENTROPY, metrics=["accuracy"])
    random = np.random.default_rng(0)
    tokens, labels = random.integers(0, 5000, (batch, 64)), random.integers(0, 2, batch)
    model.fit(tokens, labels, batch_size=batch, epochs=4, verbose=0)


def transformer(batch: int) -> None:
    model = build(sequence_length=128, vocabulary=8000, width=64, heads=4, blocks=2)
    model.compile(keras.optimizers.AdamW(1e-4), _CROSSENTROPY)
    random = np.random.default_rng(0)
    tokens, labels = random.integers(0, 8000, (batch, 128)), random.integers(0, 4, batch)
    model.fit(tokens, labels, batch_size=batch, epochs=4, verbose=0)


def tabular(batch: int) -> None:
    hidden = [layers.Dense(512, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((128,)), *hidden, layers.Dense(1)])
    model.compile("adam", "mean_squared_error")
    random = np.random.default_rng(0)
    rows, values = random.random((batch, 128), np.float32), random.random((batch, 1), np.float32)
    model.fit(rows, values, batch_size=batch, epochs=4, verbose=0)


if __name__ == "__main__":
    {"cnn": cnn, "lstm": lstm, "transformer": transformer, "tabular": tabular}[sys.argv[1]](int(sys.argv[2]))
