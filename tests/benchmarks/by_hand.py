"""One try of a batch size as people make it by hand: a plain Keras script that dies when memory runs out.

`configs/cnn.yaml` written as a script. The limit comes from the environment, as TensorFlow reads it; its own waits
before an out-of-memory error are left in.
"""

from __future__ import annotations

import sys

import keras
import numpy as np
from keras import layers


def main(batch: int) -> None:
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
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["accuracy"])
    random = np.random.default_rng(0)
    images, labels = random.random((batch, 32, 32, 3), np.float32), random.integers(0, 10, batch)
    model.fit(images, labels, batch_size=batch, epochs=4, verbose=0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
