"""An ordinary training script: a text classifier, its data, and `fit`. It knows nothing of oomtune.

    oomtune probe --script train.py --memory-limit 256MiB -- --batch-size {batch_size}

in this folder finds the largest batch size that it can train with, and prints the command that trains with it.
"""

from __future__ import annotations

import argparse

import keras
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    tokens = np.random.default_rng(0).integers(1, 5_000, (4_096, arguments.max_len)).astype("int32")
    labels = (tokens.sum(axis=1) % 2).astype("float32")

    model = keras.Sequential(
        [
            keras.Input((arguments.max_len,), dtype="int32"),
            keras.layers.Embedding(5_000, 64),
            keras.layers.Bidirectional(keras.layers.LSTM(64)),
            keras.layers.Dense(1, activation="sigmoid", dtype="float32"),
        ]
    )
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    model.fit(
        tokens,
        labels,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_split=0.1,
        callbacks=[keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True)],
    )
    model.save("final.keras")


if __name__ == "__main__":
    main()
