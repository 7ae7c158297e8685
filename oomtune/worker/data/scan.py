"""One pass over the data: how many samples, how long, how large their numbers are, and the worst of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from oomtune.domain import DatasetSpec, Scan
from oomtune.errors import DataUnreadable
from oomtune.worker.data.arrays import row_of
from oomtune.worker.data.lengths import Lengths, lengths_of_rows, sequences, within, words_of_rows
from oomtune.worker.data.nesting import parts
from oomtune.worker.data.open_source import open_source
from oomtune.worker.data.source import Bounds, Sample, Source
from oomtune.worker.data.value_ranges import Numbers

OnProgress = Callable[[int, float], None]

_EVERY = 1_000


def scan(
    dataset: DatasetSpec, folder: str, on_progress: OnProgress, bounds: Bounds | None = None
) -> tuple[Scan, list[Sample]]:
    """What the data is like, and its longest samples: up to 64, longest first."""
    bounds = bounds or Bounds()
    # The device is the model's; data is prepared beside it. A number too large for its type becomes infinite, and is
    # refused as such: no warning is needed.
    with tf.device("/CPU:0"), np.errstate(over="ignore"):
        source = open_source(dataset, folder, bounds)
        if source.held is not None:
            return _held(source.held, on_progress, bounds)
        return _streamed(source, on_progress, bounds)


def _held(held: Sample, on_progress: OnProgress, bounds: Bounds) -> tuple[Scan, list[Sample]]:
    inputs, targets, *_ = held
    count = len(next(iter(parts(inputs).values())))
    measured, lengths = lengths_of_rows(inputs)
    order = np.argsort(-(words_of_rows(inputs, count) if lengths is None else lengths), kind="stable")
    counted = [] if lengths is None else zip(*np.unique(lengths, return_counts=True), strict=True)
    inputs_seen, targets_seen = Numbers("inputs"), Numbers("targets")
    inputs_seen.look(inputs)
    targets_seen.look(targets)
    on_progress(count, 1.0)
    worst = within(bounds, [row_of(held, at) for at in order[: bounds.worst]])
    found = Scan(
        samples=count,
        read=count,
        lengths=tuple((int(length), int(many)) for length, many in counted),
        ranges=inputs_seen.ranges() | targets_seen.ranges(),
        fractions=targets_seen.fractions(),
        sequences=sequences(worst, [] if measured is None else [f"inputs.{measured}"]),
    )
    return found, worst


def _streamed(source: Source, on_progress: OnProgress, bounds: Bounds) -> tuple[Scan, list[Sample]]:
    lengths = Lengths(source.axes, bounds)
    inputs_seen, targets_seen = Numbers("inputs"), Numbers("targets")
    read = 0
    for sample in source.samples:
        read += 1
        inputs_seen.look(sample[0])
        targets_seen.look(sample[1], source.where())
        lengths.look(sample)
        if read % _EVERY == 0:
            on_progress(read, source.share_read())
    if not read:
        named = f" ({source.key})" if source.key else ""
        look = "check that the path names the right data" if source.key else "run the pipeline by itself to see why"
        raise DataUnreadable(f"{source.name} holds no samples{named}", hint=look)
    on_progress(read, 1.0)
    in_all = source.partial()
    kept: list[Sample] = [
        (inputs_seen.alike(inputs), targets_seen.alike(targets), *weights)
        for inputs, targets, *weights in lengths.longest_first()
    ]
    found = Scan(
        samples=read if in_all is None else max(read, in_all),
        read=read,
        lengths=lengths.counted(),
        more=in_all is not None and in_all <= read,
        ranges=inputs_seen.ranges() | targets_seen.ranges(),
        fractions=targets_seen.fractions(),
        places=targets_seen.places(),
        sequences=sequences(kept, lengths.measured),
    )
    return found, kept
