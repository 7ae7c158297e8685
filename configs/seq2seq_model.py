"""An encoder-decoder LSTM with two inputs for `seq2seq.yaml`."""

import keras
from keras import layers


def build(sequence_length: int, vocabulary: int, width: int) -> keras.Model:
    source = keras.Input((sequence_length,), dtype="int32", name="source")
    target = keras.Input((sequence_length,), dtype="int32", name="target")
    words = layers.Embedding(vocabulary, width)
    _, hidden, cell = layers.LSTM(width, return_state=True)(words(source))
    decoded = layers.LSTM(width, return_sequences=True)(words(target), initial_state=[hidden, cell])
    return keras.Model({"source": source, "target": target}, layers.Dense(vocabulary, dtype="float32")(decoded))
