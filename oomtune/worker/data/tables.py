"""Files whose lines hold a sample each: CSV, JSON lines and plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Literal

import numpy as np

from oomtune.domain import CsvData, JsonlData, TensorSpec, TextData, Tokenizer
from oomtune.worker.data.csv_cells import CsvCells
from oomtune.worker.data.json_fields import JsonFields
from oomtune.worker.data.lengths import words_in
from oomtune.worker.data.problems import files_of
from oomtune.worker.data.rows import Row, csv_rows, json_rows, records_span_lines
from oomtune.worker.data.samples import Checker, Count, Raw, finished, texts_in
from oomtune.worker.data.source import Axis, Bounds, Sample, Source, by_name
from oomtune.worker.data.synthetic import random_values
from oomtune.worker.data.text_lines import Lines
from oomtune.worker.data.tokens import tokenize_with

_CSV, _JSONL, _TEXT = "dataset.csv.path", "dataset.jsonl.path", "dataset.text.path"
_SEED = 20_240_229
# What kind of numbers a column holds is settled by so many rows before the first is given.
_LOOK_AHEAD = 1_000


def csv_source(data: CsvData, tokenizer: Tokenizer, folder: str, bounds: Bounds) -> Source:
    files = files_of(data.paths, folder, _CSV)
    sampled = Lines(files, bounds, _CSV).sampled
    from_start = sampled and any(records_span_lines(file, data.delimiter) for file in files)

    def samples(lines: Lines) -> Iterator[Raw]:
        first, rows = _looked_ahead(csv_rows(data, lines))
        cells = CsvCells(data, first)
        return (cells.sample(row, where) for row, where in rows)

    source = _of_lines(
        lambda: Lines(files, bounds, _CSV, from_start=from_start),
        samples,
        Checker("dataset.csv", data.inputs, data.targets),
        tokenizer,
        folder,
    )
    source.axes = {
        name: Axis.VARIES if columns in data.text else Axis.NOT_A_SEQUENCE
        for name, columns in by_name(data.inputs).items()
    }
    return source


def jsonl_source(data: JsonlData, tokenizer: Tokenizer, folder: str, bounds: Bounds) -> Source:
    files = files_of(data.paths, folder, _JSONL)

    def samples(lines: Lines) -> Iterator[Raw]:
        first, rows = _looked_ahead(json_rows(lines))
        fields = JsonFields(data, first)
        return (fields.sample(row, where) for row, where in rows)

    checker = Checker("dataset.jsonl", data.inputs, data.targets)
    source = _of_lines(lambda: Lines(files, bounds, _JSONL), samples, checker, tokenizer, folder)
    source.axes = dict.fromkeys(by_name(data.inputs), Axis.UNKNOWN)
    return source


def text_source(data: TextData, tokenizer: Tokenizer, folder: str, bounds: Bounds) -> Source:
    files = files_of(data.paths, folder, _TEXT)

    def samples(lines: Lines) -> Iterator[Raw]:
        for file in lines.files:
            for line in lines.of(file):
                if line.strip():
                    yield (line.rstrip("\r\n"), {}), lines.where

    source = _of_lines(
        lambda: Lines(files, bounds, _TEXT),
        samples,
        Checker("dataset.text"),
        tokenizer,
        folder,
        lambda tokens: _with_targets(tokens, data.targets),
    )
    source.axes = {"": Axis.VARIES}
    return source


def _of_lines(
    opened: Callable[[], Lines],
    samples: Callable[[Lines], Iterator[Raw]],
    checker: Checker,
    tokenizer: Tokenizer,
    folder: str,
    then: Callable[[Iterator[Sample]], Iterator[Sample]] = lambda samples: samples,
) -> Source:
    lines, count = opened(), Count()
    tokenize = tokenize_with(tokenizer, folder, lambda: texts_in(samples(opened())))
    return Source(
        samples=count.over(then(finished(samples(lines), checker, tokenize))),
        share_read=lines.share_read,
        partial=lambda: lines.in_all(count.given),
        where=lambda: checker.where,
        name=str(lines.files[0]),
        key=lines.key,
    )


def _looked_ahead(rows: Iterator[Row]) -> tuple[list[Row], Iterator[Row]]:
    first = list(islice(rows, _LOOK_AHEAD))
    return first, chain(first, rows)


def _with_targets(samples: Iterator[Sample], targets: Literal["next", "same"] | TensorSpec) -> Iterator[Sample]:
    """Tokens with their targets; a line too short to have any is no sample."""
    generator = np.random.default_rng(_SEED)
    for tokens, _ in samples:
        if isinstance(targets, TensorSpec):
            if length := len(tokens) if tokens.ndim else words_in(tokens):
                yield tokens, _random(targets, length, generator)
        elif targets == "next":
            if len(tokens) > 1:
                yield tokens[:-1], tokens[1:]
        elif len(tokens):
            yield tokens, tokens


def _random(tensor: TensorSpec, length: int, generator: np.random.Generator) -> Any:
    """A random target; `sequence_length` in its shape stands for the number of the sample's tokens."""
    shape = [length if size == "sequence_length" else size for size in tensor.shape]
    return random_values(tensor, shape, generator)
