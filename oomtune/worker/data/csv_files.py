"""Read CSV files: rows with their places, and cells as numbers, text or class names."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from oomtune.domain import Columns, CsvData, Names, by_name
from oomtune.errors import DataUnreadable
from oomtune.worker.data.lines import Lines, line_stream
from oomtune.worker.data.samples import Checker, RawSample
from oomtune.worker.data.source import Axis, Bounds, Stream, each_side, files_of, missing, unreadable

_KEY = "dataset.csv.path"
_INT32_END = 2**31
_MAX_CELL = 2**31 - 1
_DELIMITERS = (";", "\t", "|", ",")
# This many rows decide what kind of values a column has.
_ROWS_TO_DECIDE = 1_000

Row = tuple[dict[str, str], str]
"""The cells by column, and their place."""


def csv_source(data: CsvData, folder: str, bounds: Bounds) -> Stream:
    files = files_of(data.paths, folder, _KEY)
    is_sampled = Lines(files, bounds, _KEY).is_sampled
    from_start = is_sampled and any(_has_line_ends_in_cells(file, data.delimiter) for file in files)

    def samples(lines: Lines) -> Iterator[RawSample]:
        rows = _rows(data, lines)
        first = list(islice(rows, _ROWS_TO_DECIDE))
        cells = _Cells(data, first)
        return (cells.sample(row, where) for row, where in chain(first, rows))

    return line_stream(
        lambda: Lines(files, bounds, _KEY, from_start=from_start),
        samples,
        Checker("dataset.csv", data.inputs, data.targets),
        data.tokenizer,
        folder,
        axes={
            name: Axis.VARIES if columns in data.text else Axis.NOT_A_SEQUENCE
            for name, columns in by_name(data.inputs).items()
        },
    )


def _has_line_ends_in_cells(file: Path, delimiter: str) -> bool:
    """Return whether any cell has a line end. Reading can't start inside such a file, where a line is not a row."""
    rows = csv.reader(Lines([file], Bounds(), _KEY).read(file), delimiter=delimiter)
    try:
        return any("\n" in cell for row in islice(rows, 1_000) for cell in row)
    except csv.Error:
        return False  # reported with its line when the file is read


def _rows(data: CsvData, lines: Lines) -> Iterator[Row]:
    """Yield the cells of the spec's columns. Each file has its own header."""
    keys = dict.fromkeys(_columns(data.targets), "dataset.csv.targets")
    keys |= dict.fromkeys(_columns(data.inputs), "dataset.csv.inputs")
    csv.field_size_limit(_MAX_CELL)
    for file in lines.files:
        reader = csv.reader(lines.read(file), delimiter=data.delimiter, strict=True, skipinitialspace=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            places = _places(file, header, keys)
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise DataUnreadable(
                        f"{lines.where}: {len(row)} cells in this row, {len(header)} in the header ({lines.key})",
                        hint="the file is cut short here, or cells are missing; remove the row or complete it"
                        if len(row) < len(header)
                        else "put quotes around cells that contain the delimiter; see also dataset.csv.delimiter",
                    )
                yield {column: row[place] for column, place in places.items()}, lines.where
        except csv.Error as error:
            if lines.ended_early:
                continue  # the stretch ended inside a cell
            raise unreadable(lines.where, error, lines.key, "the file is cut short, or a quote is not closed") from None


def _columns(names: Names) -> list[str]:
    entries = by_name(names).values()
    return [name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)]


def _places(file: Path, header: list[str], keys: dict[str, str]) -> dict[str, int]:
    """Return the position of each column of the spec in the header."""
    if not header:
        raise DataUnreadable(f"{file} is empty ({_KEY})", hint="expected a header and one row per sample")
    for column, key in keys.items():
        if column not in header:
            _refuse_other_delimiter(file, header, column, key)
            raise missing(file, "column", column, key, header)
        if header.count(column) > 1:
            raise DataUnreadable(f"{file} has the column {column!r} twice ({key})", hint="rename one of them")
    return {column: header.index(column) for column in keys}


def _refuse_other_delimiter(file: Path, header: list[str], column: str, key: str) -> None:
    """Raise with the right delimiter if the whole header was read as one column that contains this one."""
    for delimiter in _DELIMITERS:
        if len(header) == 1 and column in [name.strip() for name in header[0].split(delimiter)]:
            raise DataUnreadable(
                f"{file} has no column {column!r} ({key}): its header is one column, {header[0]!r}",
                hint=f"set dataset.csv.delimiter: {json.dumps(delimiter)}",
            )


class _Cells:
    """Turns rows into samples. The first rows decide which columns hold class names, and which hold fractions."""

    def __init__(self, data: CsvData, first: list[Row]) -> None:
        self._data = data
        self._classes: dict[str, dict[str, int]] = {
            column: {} for column in _columns(data.targets) if _are_names([row[column] for row, _ in first])
        }
        self._fractional: set[Columns] = set()
        for row, where in first:
            self.sample(row, where)

    def sample(self, row: dict[str, str], where: str) -> RawSample:
        return each_side(self._data, lambda side, columns: self._value(side, columns, row, where)), where

    def _value(self, side: str, columns: Columns, row: dict[str, str], where: str) -> Any:
        if isinstance(columns, str) and columns in self._data.text:
            return row[columns]
        names = [columns] if isinstance(columns, str) else columns
        values = [self._number(side, column, row[column], where) for column in names]
        if side == "targets" and any(not value.is_integer() or abs(value) >= _INT32_END for value in values):
            self._fractional.add(columns)
        is_fractional = side == "inputs" or columns in self._fractional
        dtype = np.float32 if is_fractional else np.int32
        return np.array(values[0] if isinstance(columns, str) else values, dtype=dtype)

    def _number(self, side: str, column: str, text: str, where: str) -> float:
        classes = self._classes.get(column) if side == "targets" else None
        name = text.strip()
        if classes is None or not name:
            return _number(text, column, where, side)
        return float(classes.setdefault(name, len(classes)))


def _number(text: str, column: str, where: str, side: str) -> float:
    try:
        return float(text)
    except ValueError:
        content = f"is {text[:40]!r}, not a number" if text.strip() else "is empty"
        raise DataUnreadable(
            f"{where}: column {column!r} {content} (dataset.csv.{side})",
            hint="complete or remove the row; list columns of text in dataset.csv.text",
        ) from None


def _are_names(cells: list[str]) -> bool:
    """Return whether most cells are not numbers. A single name among numbers is probably a mistake."""
    return sum(not _is_number(cell) for cell in cells if cell.strip()) * 2 > len(cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
