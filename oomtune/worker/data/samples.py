"""From what files hold to samples: every value is looked at once, and text becomes tokens some hundred at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from oomtune.domain import ArrayNames, Names
from oomtune.errors import DataUnreadable
from oomtune.worker.data import nesting
from oomtune.worker.data.source import SIDES, Sample
from oomtune.worker.data.tokens import Text, Tokenize, Words

Raw = tuple[Sample, str]
"""The sides of a sample and their place; a text is still a `str`, or the words of one."""

_AT_ONCE = 256


class Checker:
    """Refuses samples that can't be trained on, with the place they came from."""

    def __init__(
        self,
        key: str,
        inputs: Names | ArrayNames = "inputs",
        targets: Names | ArrayNames = "targets",
        *,
        by_side: bool = True,
    ) -> None:
        """`by_side` says whether the spec has an entry for each side below this key."""
        self._key = key
        self._by_side = by_side
        self._names: dict[str, Names | ArrayNames] = {"inputs": inputs, "targets": targets, "weights": "weights"}
        self._shapes: dict[tuple[str, str], tuple[int, ...] | None] = {}
        """None of a text: how many tokens it has is not known yet."""
        self.where = ""
        """The place of the sample that was given last, of those that were looked at."""

    def look(self, sample: Raw) -> Raw:
        sides, where = sample
        for side, values in zip(SIDES, sides, strict=False):
            for name, value in nesting.parts(values).items():
                self._look(side, name, value, where)
        return sample

    def _look(self, side: str, name: str, value: Any, where: str) -> None:
        shape: tuple[int, ...] | None = None
        if isinstance(value, str | Words):
            self._look_at_text(side, name, value, where)
        else:
            shape = value.shape
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                self._refuse_number(side, name, value, where)
        seen = self._shapes.setdefault((side, name), shape)
        if seen == shape:
            return
        if seen is None or shape is None:
            is_now, was = ("text", "numbers") if shape is None else ("numbers", "text")
            raise DataUnreadable(
                f"{where}: {self._called(side, name)} is {is_now}, earlier samples have {was} ({self._entry(side)})",
                hint="make it the same in all samples: a text, or numbers",
            )
        if len(seen) != len(shape) or seen[1:] != shape[1:]:
            raise DataUnreadable(
                f"{where}: {self._called(side, name)} has the shape {list(shape)}, earlier samples have {list(seen)}"
                f" ({self._entry(side)})",
                hint="samples may differ along their first axis only; bring them to one shape",
            )

    def _look_at_text(self, side: str, name: str, text: Text, where: str) -> None:
        try:
            (text if isinstance(text, str) else " ".join(text.words)).encode()
        except UnicodeEncodeError as error:
            raise DataUnreadable(
                f"{where}: {self._called(side, name)} holds half a character, {error.object[error.start]!r}"
                f" ({self._entry(side)})",
                hint="it was cut amid a surrogate pair; write it again, or remove the sample",
            ) from None

    def _refuse_number(self, side: str, name: str, value: Any, where: str) -> None:
        position = np.argwhere(~np.isfinite(value))[0]
        number = value[tuple(position)]
        called = self._called(side, name, int(position[-1]) if value.ndim else 0)
        raise DataUnreadable(
            f"{where}: {called} is {'NaN' if np.isnan(number) else 'infinite'} ({self._entry(side)})",
            hint="training on it would give a loss of NaN; remove the sample or fill in a number",
        )

    def _entry(self, side: str) -> str:
        return f"{self._key}.{side}" if self._by_side else self._key

    def _called(self, side: str, name: str, position: int | None = None) -> str:
        names = self._names[side]
        entry = names.get(name, name) if isinstance(names, dict) else name or names
        if isinstance(entry, tuple) and position is not None:
            return repr(entry[position])
        return repr(entry) if isinstance(entry, str) else " and ".join(map(repr, entry))


class Count:
    """How many samples have been given so far."""

    def __init__(self) -> None:
        self.given = 0

    def over(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        for sample in samples:
            self.given += 1
            yield sample


def finished(samples: Iterator[Raw], checker: Checker, tokenize: Tokenize | None) -> Iterator[Sample]:
    """The samples as arrays."""
    while batch := [checker.look(sample) for sample in islice(samples, _AT_ONCE)]:
        tokens = _tokens(batch, tokenize)
        for sides, where in batch:
            checker.where = where
            yield _filled(sides, tokens)


def texts_in(samples: Iterator[Raw]) -> Iterator[Text]:
    for sample in samples:
        yield from _texts(sample)


def _texts(sample: Raw) -> list[Text]:
    sides, _ = sample
    return [value for value in nesting.parts(sides).values() if isinstance(value, str | Words)]


def _tokens(batch: list[Raw], tokenize: Tokenize | None) -> Iterator[Any]:
    texts = [text for sample in batch for text in _texts(sample)]
    if not texts:
        return iter(())
    assert tokenize is not None, "only kinds that may hold text give any, and they come with a tokenizer"
    return iter(tokenize(texts))


def _filled(sides: Sample, tokens: Iterator[Any]) -> Sample:
    filled: Sample = nesting.mapped(lambda _, value: next(tokens) if isinstance(value, str | Words) else value, sides)
    return filled
