"""Turn text into tokens: whole numbers above 0, which is padding. Text stays text for a model that takes text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
# This many texts give as good a vocabulary as all of them.
_MAX_TEXTS_TO_LEARN = 100_000
_TEXTS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Words:
    """A text that is stored as a list of words."""

    words: list[str]


Text = str | Words
Tokenize = Callable[[list[Text]], list[Any]]
"""Returns one int32 array per text, or the text itself as bytes."""


def tokenize_with(tokenizer: Tokenizer, folder: str, texts: Callable[[], Iterator[Text]]) -> Tokenize:
    """Return the spec's tokenizing function. It calls `texts` to read the data again if it learns a vocabulary."""
    if tokenizer.vectorization is not None:
        arguments = tokenizer.vectorization
        # Built with the first text: data without text needs no vocabulary.
        build = cache(lambda: _vectorization(arguments, folder, texts))

        def tokenize(batch: list[Text]) -> list[Any]:
            return build()(batch)

        return tokenize
    if tokenizer.split == "none":
        return lambda batch: [np.array(_joined(text).encode()) for text in batch]
    hash_tokens = _hashing(tokenizer.split, tokenizer.max - 1)
    return lambda batch: [hash_tokens(text) for text in batch]


def _hashing(split: str, largest: int) -> Callable[[Text], Any]:
    """Return a function that splits a text, unless it is split already, and hashes the pieces."""
    byte_tokens = np.array([1 + crc32(bytes([value])) % largest for value in range(256)], dtype=np.int32)

    def tokens(text: Text) -> Any:
        if isinstance(text, str) and split == "bytes":
            return byte_tokens[np.frombuffer(text.encode(), dtype=np.uint8)]
        pieces = text.words if isinstance(text, Words) else text.split() if split == "words" else text
        return np.fromiter((1 + crc32(piece.encode()) % largest for piece in pieces), dtype=np.int32)

    return tokens


def _joined(text: Text) -> str:
    return " ".join(text.words) if isinstance(text, Words) else text


def _vectorization(arguments: dict[str, Any], folder: str, texts: Callable[[], Iterator[Text]]) -> Tokenize:
    import keras

    config = {**arguments, "ragged": True, "output_mode": "int"}
    if isinstance(config.get("vocabulary"), str):
        config["vocabulary"] = str(Path(folder, config["vocabulary"]))
    try:
        layer = keras.layers.TextVectorization(**config)
    except (TypeError, ValueError, OSError, tf.errors.OpError) as error:
        raise DataUnreadable(
            f"{_KEY}: {str(error).splitlines()[0]}", hint="see keras.layers.TextVectorization"
        ) from None
    if config.get("vocabulary") is None:
        examples = list(map(_joined, islice(texts(), _MAX_TEXTS_TO_LEARN)))
        if not examples:
            raise DataUnreadable(f"{_KEY}: the data has no text to learn a vocabulary from", hint="check the path")
        layer.adapt(tf.data.Dataset.from_tensor_slices(examples).batch(_TEXTS_AT_ONCE))

    def tokenize(batch: list[Text]) -> list[Any]:
        if any(isinstance(text, Words) for text in batch) and config.get("split", "whitespace") != "whitespace":
            raise DataUnreadable(
                f"{_KEY}.split: the data has lists of words, which this would split differently",
                hint="remove split to keep the words as they are",
            )
        ragged = layer(tf.constant(list(map(_joined, batch)), dtype=tf.string))
        values = ragged.values.numpy().astype(np.int32)
        return np.split(values, ragged.row_splits.numpy()[1:-1])

    return tokenize


def words_in(array: Any) -> int:
    """Return the number of words of a text that the model splits itself, 0 for anything else."""
    return len(array.item().split()) if array.dtype.kind in "SU" and array.size == 1 else 0
