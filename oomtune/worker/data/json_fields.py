"""The fields of a JSON object as a sample: tokens, text, arrays, numbers and the names of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from oomtune.domain import Columns, JsonlData
from oomtune.errors import DataUnreadable
from oomtune.worker.data.problems import not_there
from oomtune.worker.data.rows import Row
from oomtune.worker.data.samples import Raw
from oomtune.worker.data.source import each
from oomtune.worker.data.tokens import Words

_INT32 = np.iinfo(np.int32)


class JsonFields:
    """Reads objects. A field that holds a fraction in one of the first objects is one of fractions in all."""

    def __init__(self, data: JsonlData, first: list[Row]) -> None:
        self._data = data
        self._classes: dict[str, dict[str, int]] = {}
        self._fractional: set[str] = set()
        self._texts: set[str] = set()
        """The fields that hold text: there an empty list has no words, and elsewhere no numbers."""
        for row, where in first:
            self.sample(row, where)

    def sample(self, row: dict[str, Any], where: str) -> Raw:
        inputs = each(lambda columns: self._columns("inputs", columns, row, where), self._data.inputs)
        targets = each(lambda columns: self._columns("targets", columns, row, where), self._data.targets)
        return (inputs, targets), where

    def _columns(self, side: str, columns: Columns, row: dict[str, Any], where: str) -> Any:
        if isinstance(columns, str):
            return self._value(side, columns, row, where)
        values = [self._value(side, column, row, where) for column in columns]
        for column, value in zip(columns, values, strict=True):
            if isinstance(value, str | Words) or value.shape:
                raise DataUnreadable(
                    f"{where}: field {column!r} is no single number (dataset.jsonl.{side})",
                    hint="a list of fields is one vector of numbers; map inputs to fields for anything else",
                )
        fractions = side == "inputs" or any(value.dtype.kind == "f" for value in values)
        return np.array(values, dtype=np.float32 if fractions else np.int32)

    def _value(self, side: str, field: str, row: dict[str, Any], where: str) -> Any:
        if field not in row:
            raise not_there(where, "field", field, f"dataset.jsonl.{side}", row)
        value = row[field]
        if isinstance(value, str):
            if side == "inputs" or field in self._data.text:
                self._texts.add(field)
                return value
            names = self._classes.setdefault(field, {})
            return np.array(names.setdefault(value, len(names)), dtype=np.int32)
        if (
            isinstance(value, list)
            and all(isinstance(entry, str) for entry in value)
            and (value or field in self._texts)
        ):
            return self._words(side, field, value)
        try:
            array = np.array(value)
        except ValueError:
            raise self._refused(side, field, where, "holds lists of differing lengths") from None
        return self._numbers(side, field, array, where)

    def _words(self, side: str, field: str, words: list[str]) -> Any:
        """A list of strings is text that is split already; of other targets it is a class for each step."""
        if side == "inputs" or field in self._data.text:
            self._texts.add(field)
            return Words(words)
        names = self._classes.setdefault(field, {})
        return np.array([names.setdefault(word, len(names)) for word in words], dtype=np.int32)

    def _numbers(self, side: str, field: str, array: Any, where: str) -> Any:
        kind = array.dtype.kind
        if kind == "f" and array.size:
            self._fractional.add(field)
        if kind in "fbi" and field in self._fractional:
            return array.astype(np.float32)
        if kind == "b" or not array.size:
            return array.astype(np.int32)
        if kind in "iu" and _INT32.min <= array.min() and array.max() <= _INT32.max:
            return array.astype(np.int32)
        if kind in "iu" or (kind == "O" and _all_ints(array)):
            raise self._refused(side, field, where, "holds a number beyond 32 bits")
        raise self._refused(side, field, where, "is neither a number, nor a list of numbers or of strings, nor a text")

    def _refused(self, side: str, field: str, where: str, what: str) -> DataUnreadable:
        return DataUnreadable(
            f"{where}: field {field!r} {what} (dataset.jsonl.{side})",
            hint="a sample's field is a number, a text, its words, or lists of numbers that make an array",
        )


def _all_ints(array: Any) -> bool:
    return all(isinstance(value, int) for value in array.flat)
