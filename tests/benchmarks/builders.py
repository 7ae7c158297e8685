"""Models with branches, which a list of layers can't describe."""

from __future__ import annotations

import keras
from keras import layers


def transformer(sequence_length: int) -> keras.Model:
    tokens = keras.Input((sequence_length,), dtype="int32")
    hidden = layers.Embedding(2000, 32)(tokens)
    attended = layers.MultiHeadAttention(2, 16)(hidden, hidden)
    hidden = layers.LayerNormalization()(hidden + attended)
    widened = layers.Dense(128, activation="gelu")(hidden)
    hidden = layers.LayerNormalization()(hidden + layers.Dense(32)(widened))
    pooled = layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(tokens, layers.Dense(1, dtype="float32")(pooled))


def resnet() -> keras.Model:
    image = keras.Input((32, 32, 3))
    hidden = layers.Conv2D(16, 3, padding="same")(image)
    for filters in (16, 32, 64):
        strides = 1 if filters == 16 else 2
        inner = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(hidden)
        inner = layers.ReLU()(layers.BatchNormalization()(inner))
        inner = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same", use_bias=False)(inner))
        hidden = layers.ReLU()(inner + layers.Conv2D(filters, 1, strides=strides)(hidden))
    return keras.Model(image, layers.Dense(1, dtype="float32")(layers.GlobalAveragePooling2D()(hidden)))


def unet() -> keras.Model:
    image = keras.Input((32, 32, 3))
    fine = layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    coarse = layers.Conv2D(32, 3, padding="same", activation="relu")(layers.MaxPooling2D()(fine))
    raised = layers.UpSampling2D()(coarse)
    joined = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.Concatenate()([fine, raised]))
    pooled = layers.GlobalAveragePooling2D()(layers.Conv2D(1, 1)(joined))
    return keras.Model(image, layers.Activation("linear", dtype="float32")(pooled))


def two_ways(sequence_length: int) -> keras.Model:
    tokens = keras.Input((sequence_length,), dtype="int32")
    hidden = layers.Bidirectional(layers.GRU(24, return_sequences=True))(layers.Embedding(2000, 24)(tokens))
    hidden = layers.Bidirectional(layers.GRU(24))(layers.Dropout(0.2)(hidden))
    return keras.Model(tokens, layers.Dense(1, dtype="float32")(hidden))


def dense_net() -> keras.Model:
    image = keras.Input((32, 32, 3))
    hidden = layers.Conv2D(12, 3, padding="same")(image)
    for _ in range(3):
        new = layers.Conv2D(12, 3, padding="same")(layers.ReLU()(layers.BatchNormalization()(hidden)))
        hidden = layers.Concatenate()([hidden, new])
    return keras.Model(image, layers.Dense(1, dtype="float32")(layers.GlobalAveragePooling2D()(hidden)))


def mixer() -> keras.Model:
    image = keras.Input((32, 32, 3))
    hidden = layers.Reshape((64, 32))(layers.Conv2D(32, 4, strides=4)(image))
    for _ in range(2):
        across = layers.Permute((2, 1))(layers.LayerNormalization()(hidden))
        across = layers.Dense(64)(layers.Dense(96, activation="gelu")(across))
        hidden = hidden + layers.Permute((2, 1))(across)
        within = layers.Dense(96, activation="gelu")(layers.LayerNormalization()(hidden))
        hidden = hidden + layers.Dense(32)(within)
    return keras.Model(image, layers.Dense(1, dtype="float32")(layers.GlobalAveragePooling1D()(hidden)))
