"""The rows of CSV files and the objects of JSON lines, each with its place."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from oomtune.domain import CsvData, Names
from oomtune.errors import DataUnreadable
from oomtune.worker.data.problems import not_there, unreadable
from oomtune.worker.data.source import Bounds, by_name
from oomtune.worker.data.text_lines import Lines

Row = tuple[dict[str, Any], str]
"""The values of a sample by column or field, and where they stand."""

_LONGEST_CELL = 2**31 - 1
_SHOWN = 40
_DELIMITERS = (";", "\t", "|", ",")


def columns_in(names: Names) -> list[str]:
    """Every column that is named."""
    entries = by_name(names).values()
    return [name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)]


def csv_rows(data: CsvData, lines: Lines) -> Iterator[Row]:
    """The cells of the columns in use. Each file has a header of its own, in an order of its own."""
    keys = dict.fromkeys(columns_in(data.targets), "dataset.csv.targets")
    keys |= dict.fromkeys(columns_in(data.inputs), "dataset.csv.inputs")
    csv.field_size_limit(_LONGEST_CELL)
    for file in lines.files:
        reader = csv.reader(lines.of(file), delimiter=data.delimiter, strict=True, skipinitialspace=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            places = _places(file, header, keys)
            for row in reader:
                if len(row) != len(header):
                    if not row:
                        continue
                    raise DataUnreadable(
                        f"{lines.where}: {len(row)} cells in this row, {len(header)} in the header ({lines.key})",
                        hint="the file is cut short here, or cells are missing; remove the row or fill it in"
                        if len(row) < len(header)
                        else "a delimiter inside a cell needs quotes around the cell; see also dataset.csv.delimiter",
                    )
                yield {column: row[place] for column, place in places}, lines.where
        except csv.Error as error:
            if lines.cut_off:
                continue  # the stretch ended amid a cell
            raise unreadable(lines.where, error, lines.key, "the file is cut short, or a quote is not closed") from None


def _places(file: Path, header: list[str], keys: dict[str, str]) -> list[tuple[str, int]]:
    if not header:
        raise DataUnreadable(f"{file} is empty (dataset.csv.path)", hint="expected a header and a row for each sample")
    for column, key in keys.items():
        if column not in header:
            _refuse_other_delimiter(file, header, column, key)
            raise not_there(file, "column", column, key, header)
        if header.count(column) > 1:
            raise DataUnreadable(f"{file} has the column {column!r} twice ({key})", hint="rename one of them")
    return [(column, header.index(column)) for column in keys]


def _refuse_other_delimiter(file: Path, header: list[str], column: str, key: str) -> None:
    """One column whose name holds those that are wanted is a line that was not split."""
    for delimiter in _DELIMITERS:
        if len(header) == 1 and column in [name.strip() for name in header[0].split(delimiter)]:
            raise DataUnreadable(
                f"{file} has no column {column!r} ({key}): its header is one column, {header[0]!r}",
                hint=f"set dataset.csv.delimiter: {json.dumps(delimiter)}",
            )


def records_span_lines(file: Path, delimiter: str) -> bool:
    """Are there line ends inside cells? Then a row may begin anywhere, and no stretch can start amid the file."""
    rows = csv.reader(Lines([file], Bounds(), "dataset.csv.path").of(file), delimiter=delimiter)
    try:
        return any("\n" in cell for row in islice(rows, 1_000) for cell in row)
    except csv.Error:
        return False  # reading it in earnest says where


def json_rows(lines: Lines) -> Iterator[Row]:
    for file in lines.files:
        for line in lines.of(file):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _not_json(line, lines, error) from None
            if not isinstance(value, dict):
                raise DataUnreadable(
                    f"{lines.where}: expected a JSON object, found {line.strip()[:_SHOWN]} ({lines.key})",
                    hint='one object a line, such as {"tokens": [4, 2], "label": 1}',
                )
            yield value, lines.where


def _not_json(line: str, lines: Lines, error: Exception) -> DataUnreadable:
    if not line.endswith("\n"):
        return DataUnreadable(
            f"{lines.where}: the last line is cut short: {line[-_SHOWN:]} ({lines.key})",
            hint="remove it, or write the file again",
        )
    return DataUnreadable(f"{lines.where}: not JSON: {error} ({lines.key})", hint="expected one JSON object a line")
