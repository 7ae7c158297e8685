"""A small transformer encoder for `transformer.yaml`."""

import keras
from keras import layers


def build(sequence_length: int, vocabulary: int, width: int, heads: int, blocks: int) -> keras.Model:
    tokens = keras.Input((sequence_length,), dtype="int32")
    positions = keras.ops.arange(sequence_length)
    hidden = layers.Embedding(vocabulary, width)(tokens) + layers.Embedding(sequence_length, width)(positions)
    for _ in range(blocks):
        hidden = encoder_block(hidden, width, heads)
    pooled = layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(tokens, layers.Dense(4, dtype="float32")(pooled))


def encoder_block(hidden: keras.KerasTensor, width: int, heads: int) -> keras.KerasTensor:
    attended = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(hidden, hidden)
    hidden = layers.LayerNormalization()(hidden + attended)
    widened = layers.Dense(4 * width, activation="gelu")(hidden)
    return layers.LayerNormalization()(hidden + layers.Dense(width)(widened))
