"""Text to tokens: whole numbers above 0, since 0 is padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import tensorflow as tf

from oomtune.domain import Tokenizer
from oomtune.errors import DataUnreadable

_KEY = "dataset.tokenizer.TextVectorization"
# A vocabulary is as good from these as from all.
_MOST_ADAPTED = 100_000
_ADAPT_BATCH = 1_000

Tokenize = Callable[[list[str]], list[Any]]
"""One int32 array for each text."""


def tokenize_with(tokenizer: Tokenizer, folder: str, texts: Callable[[], Iterator[str]]) -> Tokenize:
    """The function that the spec asks for. `texts` begins the data anew, for a layer that learns its vocabulary."""
    if tokenizer.vectorization is not None:
        arguments = tokenizer.vectorization
        # Made with the first text: data that turns out to have none needs no vocabulary.
        made = cache(lambda: _vectorizing(arguments, folder, texts))

        def tokenize(batch: list[str]) -> list[Any]:
            return made()(batch)

        return tokenize
    most = tokenizer.max - 1
    if tokenizer.split == "bytes":
        table = np.array([1 + crc32(bytes([value])) % most for value in range(256)], dtype=np.int32)
        return lambda batch: [table[np.frombuffer(text.encode(), dtype=np.uint8)] for text in batch]
    split: Callable[[str], Iterable[str]] = str.split if tokenizer.split == "words" else iter
    return lambda batch: [
        np.fromiter((1 + crc32(token.encode()) % most for token in split(text)), dtype=np.int32) for text in batch
    ]


def _vectorizing(arguments: dict[str, Any], folder: str, texts: Callable[[], Iterator[str]]) -> Tokenize:
    import keras

    given = {**arguments, "ragged": True, "output_mode": "int"}
    if isinstance(given.get("vocabulary"), str):
        given["vocabulary"] = str(Path(folder, given["vocabulary"]))
    try:
        layer = keras.layers.TextVectorization(**given)
    except (TypeError, ValueError, OSError, tf.errors.OpError) as error:
        raise DataUnreadable(
            f"{_KEY}: {str(error).splitlines()[0]}", hint="see keras.layers.TextVectorization"
        ) from None
    if given.get("vocabulary") is None:
        learned = list(islice(texts(), _MOST_ADAPTED))
        if not learned:
            raise DataUnreadable(f"{_KEY}: the data holds no text to learn a vocabulary from", hint="check the path")
        layer.adapt(tf.data.Dataset.from_tensor_slices(learned).batch(_ADAPT_BATCH))

    def tokenize(batch: list[str]) -> list[Any]:
        ragged = layer(tf.constant(batch, dtype=tf.string))
        values = ragged.values.numpy().astype(np.int32)
        return np.split(values, ragged.row_splits.numpy()[1:-1])

    return tokenize
