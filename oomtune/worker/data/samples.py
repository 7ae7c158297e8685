"""Check samples and turn their text into tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from oomtune.domain import ArrayNames, Names, Tokenizer
from oomtune.errors import DataUnreadable
from oomtune.worker.data.source import SIDES, Sample
from oomtune.worker.data.tokens import Text, Words, tokenize_with
from oomtune.worker.nesting import map_parts, parts

RawSample = tuple[Sample, str]
"""The sides of a sample and its place. Text is still a `str` or `Words`."""

_SAMPLES_AT_ONCE = 256


class Checker:
    """Raises `DataUnreadable` for samples that can't be trained on, with their place."""

    def __init__(
        self,
        key: str,
        inputs: Names | ArrayNames = "inputs",
        targets: Names | ArrayNames = "targets",
        *,
        has_sides: bool = True,
    ) -> None:
        """`has_sides` is whether the spec has separate entries for inputs and targets below this key."""
        self._key = key
        self._has_sides = has_sides
        self._names: dict[str, Names | ArrayNames] = {"inputs": inputs, "targets": targets, "weights": "weights"}
        self._shapes: dict[tuple[str, str], tuple[int, ...] | None] = {}
        """None for text, whose number of tokens is not known yet."""

    def check(self, sample: RawSample) -> RawSample:
        sides, where = sample
        for side, values in zip(SIDES, sides, strict=False):
            for name, value in parts(values).items():
                self._check_value(side, name, value, where)
        return sample

    def _check_value(self, side: str, name: str, value: Any, where: str) -> None:
        shape: tuple[int, ...] | None = None
        if isinstance(value, str | Words):
            self._check_text(side, name, value, where)
        else:
            shape = value.shape
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise self._not_finite(side, name, value, where)
        earlier = self._shapes.setdefault((side, name), shape)
        if earlier == shape:
            return
        if earlier is None or shape is None:
            kind, earlier_kind = ("text", "numbers") if shape is None else ("numbers", "text")
            raise DataUnreadable(
                f"{where}: {self._label(side, name)} is {kind}, earlier samples have {earlier_kind}"
                f" ({self._entry(side)})",
                hint="use either text or numbers in all samples",
            )
        if len(earlier) != len(shape) or earlier[1:] != shape[1:]:
            raise DataUnreadable(
                f"{where}: {self._label(side, name)} has the shape {list(shape)}, earlier samples have {list(earlier)}"
                f" ({self._entry(side)})",
                hint="samples may only differ along their first axis; bring them to one shape",
            )

    def _check_text(self, side: str, name: str, text: Text, where: str) -> None:
        try:
            (text if isinstance(text, str) else " ".join(text.words)).encode()
        except UnicodeEncodeError as error:
            raise DataUnreadable(
                f"{where}: {self._label(side, name)} contains half a character, {error.object[error.start]!r}"
                f" ({self._entry(side)})",
                hint="the text was cut inside a surrogate pair; write it again, or remove the sample",
            ) from None

    def _not_finite(self, side: str, name: str, value: Any, where: str) -> DataUnreadable:
        position = np.argwhere(~np.isfinite(value))[0]
        number = value[tuple(position)]
        label = self._label(side, name, int(position[-1]) if value.ndim else 0)
        return DataUnreadable(
            f"{where}: {label} is {'NaN' if np.isnan(number) else 'infinite'} ({self._entry(side)})",
            hint="training on it would give a loss of NaN; remove the sample or replace the value",
        )

    def _entry(self, side: str) -> str:
        return f"{self._key}.{side}" if self._has_sides else self._key

    def _label(self, side: str, name: str, position: int | None = None) -> str:
        """Return the user's name for this part: its column, field or feature."""
        names = self._names[side]
        entry = names.get(name, name) if isinstance(names, dict) else name or names
        if isinstance(entry, tuple) and position is not None:
            return repr(entry[position])
        return repr(entry) if isinstance(entry, str) else " and ".join(map(repr, entry))


def checked_samples(
    samples: Iterator[RawSample],
    checker: Checker,
    tokenizer: Tokenizer | None = None,
    folder: str = "",
    reread: Callable[[], Iterator[RawSample]] = lambda: iter(()),
) -> Iterator[tuple[Sample, str]]:
    """Yield the samples as arrays, with tokens for text, and their places.

    Data that may have text needs a tokenizer, and `reread` to read the data again: a tokenizer that learns its
    vocabulary reads all the text first.
    """
    tokenize = None
    if tokenizer is not None:
        tokenize = tokenize_with(tokenizer, folder, lambda: (text for sample in reread() for text in _texts(sample)))
    while batch := [checker.check(sample) for sample in islice(samples, _SAMPLES_AT_ONCE)]:
        texts = [text for sample in batch for text in _texts(sample)]
        assert not texts or tokenize is not None, "data that may have text has a tokenizer"
        tokens = iter(tokenize(texts) if tokenize is not None and texts else ())
        for sides, where in batch:
            yield _with_tokens(sides, tokens), where


def _texts(sample: RawSample) -> list[Text]:
    sides, _ = sample
    return [value for value in parts(sides).values() if isinstance(value, str | Words)]


def _with_tokens(sides: Sample, tokens: Iterator[Any]) -> Sample:
    filled: Sample = map_parts(lambda _, value: next(tokens) if isinstance(value, str | Words) else value, sides)
    return filled
