"""The cells of a CSV row as a sample: numbers, text and the names of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from oomtune.domain import Columns, CsvData
from oomtune.errors import DataUnreadable
from oomtune.worker.data.rows import Row, columns_in
from oomtune.worker.data.samples import Raw
from oomtune.worker.data.source import each

_INT32_END = 2**31


class CsvCells:
    """Reads rows. What a column of targets holds is settled by the first rows."""

    def __init__(self, data: CsvData, first: list[Row]) -> None:
        self._data = data
        self._classes: dict[str, dict[str, int]] = {
            column: {} for column in columns_in(data.targets) if _holds_names([row[column] for row, _ in first])
        }
        self._fractional: set[Columns] = set()
        for row, where in first:
            self.sample(row, where)

    def sample(self, row: dict[str, str], where: str) -> Raw:
        inputs = each(lambda columns: self._input(columns, row, where), self._data.inputs)
        targets = each(lambda columns: self._target(columns, row, where), self._data.targets)
        return (inputs, targets), where

    def _input(self, columns: Columns, row: dict[str, str], where: str) -> Any:
        if isinstance(columns, str):
            if columns in self._data.text:
                return row[columns]
            return np.array(_number(row[columns], columns, where, "inputs"), dtype=np.float32)
        return np.array([_number(row[column], column, where, "inputs") for column in columns], dtype=np.float32)

    def _target(self, columns: Columns, row: dict[str, str], where: str) -> Any:
        if isinstance(columns, str):
            if columns in self._data.text:
                return row[columns]
            values = [self._target_number(columns, row, where)]
        else:
            values = [self._target_number(column, row, where) for column in columns]
        if columns not in self._fractional:
            if all(value.is_integer() and abs(value) < _INT32_END for value in values):
                whole = [int(value) for value in values]
                return np.array(whole[0] if isinstance(columns, str) else whole, dtype=np.int32)
            self._fractional.add(columns)
        return np.array(values[0] if isinstance(columns, str) else values, dtype=np.float32)

    def _target_number(self, column: str, row: dict[str, str], where: str) -> float:
        names = self._classes.get(column)
        name = row[column].strip()
        if names is None or not name:
            return _number(name, column, where, "targets")
        return float(names.setdefault(name, len(names)))


def _number(text: str, column: str, where: str, side: str) -> float:
    try:
        return float(text)
    except ValueError:
        found = f"is {text[:40]!r}, not a number" if text.strip() else "is empty"
        raise DataUnreadable(
            f"{where}: column {column!r} {found} (dataset.csv.{side})",
            hint="fill it in or remove the row; columns of text are listed in dataset.csv.text",
        ) from None


def _holds_names(cells: list[str]) -> bool:
    """Are most of these no numbers? A single one is a slip of the pen."""
    return sum(not _is_number(cell) for cell in cells if cell.strip()) * 2 > len(cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
