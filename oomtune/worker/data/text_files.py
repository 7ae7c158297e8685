"""Read plain text files: each line is a sample, and its targets are its next tokens, the same tokens, or random."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np

from oomtune.domain import TensorSpec, TextData
from oomtune.worker.data.lines import Lines, line_stream
from oomtune.worker.data.samples import Checker, RawSample
from oomtune.worker.data.source import Axis, Bounds, Sample, Stream, files_of
from oomtune.worker.data.synthetic import SEED, random_tensor
from oomtune.worker.data.tokens import words_in

_KEY = "dataset.text.path"


def text_source(data: TextData, folder: str, bounds: Bounds) -> Stream:
    files = files_of(data.paths, folder, _KEY)
    stream = line_stream(
        lambda: Lines(files, bounds, _KEY),
        _samples,
        Checker("dataset.text"),
        data.tokenizer,
        folder,
        axes={"": Axis.VARIES},
    )
    stream.samples = _with_targets(stream.samples, data.targets)
    return stream


def _samples(lines: Lines) -> Iterator[RawSample]:
    for file in lines.files:
        for line in lines.read(file):
            if line.strip():
                yield (line.rstrip("\r\n"), {}), lines.where


def _with_targets(
    samples: Iterable[tuple[Sample, str]], targets: Literal["next", "same"] | TensorSpec
) -> Iterator[tuple[Sample, str]]:
    """Add targets to tokens. Skip lines that are too short for targets."""
    generator = np.random.default_rng(SEED)
    for (tokens, _), where in samples:
        if isinstance(targets, TensorSpec):
            if length := len(tokens) if tokens.ndim else words_in(tokens):
                yield (tokens, random_tensor(targets, length, generator)), where
        elif targets == "next":
            if len(tokens) > 1:
                yield (tokens[:-1], tokens[1:]), where
        elif len(tokens):
            yield (tokens, tokens), where
