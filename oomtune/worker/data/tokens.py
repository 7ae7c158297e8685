"""Text to tokens: whole numbers above 0, since 0 is padding. For a model that takes text it stays what it is."""

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
# A vocabulary is as good from these as from all.
_MOST_ADAPTED = 100_000
_ADAPT_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Words:
    """A text that comes split already."""

    words: list[str]


Text = str | Words
Tokenize = Callable[[list[Text]], list[Any]]
"""One int32 array for each text, or the text itself as bytes."""


def tokenize_with(tokenizer: Tokenizer, folder: str, texts: Callable[[], Iterator[Text]]) -> Tokenize:
    """The function that the spec asks for. `texts` begins the data anew, for a layer that learns its vocabulary."""
    if tokenizer.vectorization is not None:
        arguments = tokenizer.vectorization
        # Made with the first text: data that turns out to have none needs no vocabulary.
        made = cache(lambda: _vectorizing(arguments, folder, texts))

        def tokenize(batch: list[Text]) -> list[Any]:
            return made()(batch)

        return tokenize
    if tokenizer.split == "none":
        return lambda batch: [np.array(_whole(text).encode()) for text in batch]
    tokens = _by_rule(tokenizer.split, tokenizer.max - 1)
    return lambda batch: [tokens(text) for text in batch]


def _by_rule(split: str, most: int) -> Callable[[Text], Any]:
    """Splits a text, unless it comes split, and hashes what it is split into."""
    table = np.array([1 + crc32(bytes([value])) % most for value in range(256)], dtype=np.int32)

    def tokens(text: Text) -> Any:
        if isinstance(text, str) and split == "bytes":
            return table[np.frombuffer(text.encode(), dtype=np.uint8)]
        parts = text.words if isinstance(text, Words) else text.split() if split == "words" else text
        return np.fromiter((1 + crc32(part.encode()) % most for part in parts), dtype=np.int32)

    return tokens


def _whole(text: Text) -> str:
    return " ".join(text.words) if isinstance(text, Words) else text


def _vectorizing(arguments: dict[str, Any], folder: str, texts: Callable[[], Iterator[Text]]) -> Tokenize:
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
        learned = list(map(_whole, islice(texts(), _MOST_ADAPTED)))
        if not learned:
            raise DataUnreadable(f"{_KEY}: the data holds no text to learn a vocabulary from", hint="check the path")
        layer.adapt(tf.data.Dataset.from_tensor_slices(learned).batch(_ADAPT_BATCH))

    def tokenize(batch: list[Text]) -> list[Any]:
        if any(isinstance(text, Words) for text in batch) and given.get("split", "whitespace") != "whitespace":
            raise DataUnreadable(
                f"{_KEY}.split: the data holds lists of words, and they would be split to something else",
                hint="leave split out: words that come split stay so",
            )
        ragged = layer(tf.constant(list(map(_whole, batch)), dtype=tf.string))
        values = ragged.values.numpy().astype(np.int32)
        return np.split(values, ragged.row_splits.numpy()[1:-1])

    return tokenize
