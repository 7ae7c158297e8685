"""Read JSON lines: objects with their places, and fields as tokens, text, arrays, numbers or class names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from oomtune.domain import Columns, JsonlData, by_name
from oomtune.errors import DataUnreadable
from oomtune.worker.data.lines import Lines, line_stream
from oomtune.worker.data.samples import Checker, RawSample
from oomtune.worker.data.source import Axis, Bounds, Stream, each_side, files_of, missing
from oomtune.worker.data.tokens import Words

_KEY = "dataset.jsonl.path"
_INT32 = np.iinfo(np.int32)
_MAX_SHOWN = 40
# This many objects decide what kind of values a field has.
_OBJECTS_TO_DECIDE = 1_000

Object = tuple[dict[str, Any], str]
"""The values by field, and their place."""


def jsonl_source(data: JsonlData, folder: str, bounds: Bounds) -> Stream:
    files = files_of(data.paths, folder, _KEY)

    def samples(lines: Lines) -> Iterator[RawSample]:
        objects = _objects(lines)
        first = list(islice(objects, _OBJECTS_TO_DECIDE))
        fields = _Fields(data, first)
        return (fields.sample(values, where) for values, where in chain(first, objects))

    return line_stream(
        lambda: Lines(files, bounds, _KEY),
        samples,
        Checker("dataset.jsonl", data.inputs, data.targets),
        data.tokenizer,
        folder,
        axes=dict.fromkeys(by_name(data.inputs), Axis.UNKNOWN),
    )


def _objects(lines: Lines) -> Iterator[Object]:
    for file in lines.files:
        for line in lines.read(file):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _not_json(line, lines, error) from None
            if not isinstance(value, dict):
                raise DataUnreadable(
                    f"{lines.where}: expected a JSON object, found {line.strip()[:_MAX_SHOWN]} ({lines.key})",
                    hint='expected one object per line, such as {"tokens": [4, 2], "label": 1}',
                )
            yield value, lines.where


def _not_json(line: str, lines: Lines, error: Exception) -> DataUnreadable:
    if not line.endswith("\n"):
        return DataUnreadable(
            f"{lines.where}: the last line is cut short: {line[-_MAX_SHOWN:]} ({lines.key})",
            hint="remove it, or write the file again",
        )
    return DataUnreadable(f"{lines.where}: not JSON: {error} ({lines.key})", hint="expected one JSON object per line")


class _Fields:
    """Turns objects into samples. A field with a fraction in one of the first objects is read as floats in all."""

    def __init__(self, data: JsonlData, first: list[Object]) -> None:
        self._data = data
        self._classes: dict[str, dict[str, int]] = {}
        self._fractional: set[str] = set()
        self._text: set[str] = set()
        """Fields with text, where an empty list is a text without words. Elsewhere it is an empty array."""
        for values, where in first:
            self.sample(values, where)

    def sample(self, values: dict[str, Any], where: str) -> RawSample:
        return each_side(self._data, lambda side, columns: self._columns(side, columns, values, where)), where

    def _columns(self, side: str, columns: Columns, values: dict[str, Any], where: str) -> Any:
        if isinstance(columns, str):
            return self._value(side, columns, values, where)
        vector = [self._value(side, column, values, where) for column in columns]
        for column, value in zip(columns, vector, strict=True):
            if isinstance(value, str | Words) or value.shape:
                raise DataUnreadable(
                    f"{where}: field {column!r} is not a single number (dataset.jsonl.{side})",
                    hint="a list of fields makes one vector of numbers; for anything else name one field per input",
                )
        is_fractional = side == "inputs" or any(value.dtype.kind == "f" for value in vector)
        return np.array(vector, dtype=np.float32 if is_fractional else np.int32)

    def _value(self, side: str, field: str, values: dict[str, Any], where: str) -> Any:
        if field not in values:
            raise missing(where, "field", field, f"dataset.jsonl.{side}", values)
        value = values[field]
        is_text = side == "inputs" or field in self._data.text
        if isinstance(value, str):
            if not is_text:
                return np.array(self._class_number(field, value), dtype=np.int32)
            self._text.add(field)
            return value
        is_words = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
        if is_words and (value or field in self._text):
            if not is_text:  # a class for each step
                return np.array([self._class_number(field, word) for word in value], dtype=np.int32)
            self._text.add(field)
            return Words(value)
        try:
            array = np.array(value)
        except ValueError:
            raise self._unusable_field(side, field, where, "has lists of different lengths") from None
        return self._numbers(side, field, array, where)

    def _class_number(self, field: str, name: str) -> int:
        classes = self._classes.setdefault(field, {})
        return classes.setdefault(name, len(classes))

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
        if kind in "iu" or (kind == "O" and all(isinstance(value, int) for value in array.flat)):
            raise self._unusable_field(side, field, where, "has a number beyond 32 bits")
        raise self._unusable_field(side, field, where, "is not a number, a text, or a list of numbers or strings")

    def _unusable_field(self, side: str, field: str, where: str, content: str) -> DataUnreadable:
        return DataUnreadable(
            f"{where}: field {field!r} {content} (dataset.jsonl.{side})",
            hint="use a number, a text, a list of words, or lists of numbers that form an array",
        )
