"""Read the data once before the search, and complete the spec with what the data shows."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from oomtune.domain import ENDLESS, ProbeSpec, PythonData, Scan, ScanOrder, SyntheticData
from oomtune.domain.observer import Observer
from oomtune.errors import Problem, SpecProblem, WorkerBroken
from oomtune.spec import LoadedSpec
from oomtune.storage.ledger import ledger_folder
from oomtune.storage.scans import SavedScan
from oomtune.trials.runner import TimeUp
from oomtune.trials.worker_host import WorkerHost

_TIMEOUT_S = 24 * 3600.0


def scan_data(
    loaded: LoadedSpec, key: dict[str, Any], host: WorkerHost, observer: Observer, *, deadline: float | None = None
) -> Scan | None:
    """Return what the data is like, or None for synthetic data and for data that the training code reads itself.

    A scan saved under the same `key` is used again. Data from a Python function is read every time, because nobody
    knows what it depends on. Raises `TimeUp` when the deadline, in `time.monotonic` seconds, comes first.
    """
    dataset = loaded.spec.dataset
    if dataset is None or isinstance(dataset, SyntheticData):
        return None
    saved = SavedScan.of(ledger_folder(loaded.path), key)
    if not isinstance(dataset, PythonData) and (scan := saved.load()) is not None:
        return scan
    saved.make_folder()
    order = ScanOrder(dataset=dataset, folder=loaded.spec.folder, rows_path=str(saved.rows_path))
    scan = _run_scan(host, order, observer, deadline)
    saved.save(scan)
    return scan


def _run_scan(host: WorkerHost, order: ScanOrder, observer: Observer, deadline: float | None) -> Scan:
    def report_progress(note: bytes) -> None:
        if note:
            progress = json.loads(note)
            observer.data_read(progress["samples"], progress["share"])

    host.wait_until_ready()
    timeout_s = _TIMEOUT_S if deadline is None else deadline - time.monotonic()
    if timeout_s <= 0:
        raise TimeUp
    try:
        return host.ask("scan", order, Scan, timeout_s=timeout_s, watch=report_progress)
    except WorkerBroken:
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeUp from None
        raise


def apply_scan(spec: ProbeSpec, scan: Scan | None, place: Callable[[str], str]) -> ProbeSpec:
    """Return the spec with its batch sizes limited to the data, and percentiles replaced by lengths.

    `place` returns where an entry of the spec was written, for errors."""
    if scan is None:
        return spec
    space = spec.space
    batch_sizes = space.batch_sizes[: bisect_right(space.batch_sizes, scan.samples)]
    if not batch_sizes:
        message = f"the smallest is {space.batch_sizes[0]}, and the dataset has {scan.samples} samples"
        raise _problem("search.batch_size", message, place)
    lengths = _percentile_lengths(spec, scan, place) if spec.length_percentiles else space.sequence_lengths
    # A custom training loop gets its length once, when it is built.
    counts = () if lengths is None or spec.model.trains_itself else scan.lengths
    space = dataclasses.replace(space, batch_sizes=batch_sizes, sequence_lengths=lengths, length_counts=counts)
    return dataclasses.replace(spec, space=space, scan=scan)


def _percentile_lengths(spec: ProbeSpec, scan: Scan, place: Callable[[str], str]) -> tuple[int, ...]:
    if not scan.lengths:
        raise _problem("search.sequence_length.percentiles", "the samples of this dataset have no length", place)
    multiple = spec.length_multiple_of
    rounded = {math.ceil(scan.percentile(percent) / multiple) * multiple for percent in spec.length_percentiles}
    lengths = tuple(length for length in sorted(rounded) if length >= spec.min_sequence_length)
    if not lengths:
        message = f"expected at most {max(rounded)}, the longest length of the percentiles"
        raise _problem("search.min_sequence_length", f"{message}; got {spec.min_sequence_length}", place)
    return lengths


def _problem(key: str, message: str, place: Callable[[str], str]) -> SpecProblem:
    return SpecProblem([Problem(where=place(key), key=key, message=message)])


def describe_scan(spec: ProbeSpec) -> list[str]:
    """Return what the user should know about the data before the search; the first notice counts samples."""
    scan = spec.scan
    if scan is None:
        return []
    partly = "" if scan.all_read else f"; {scan.read:,} of them were read, so lengths are estimates"
    lengths = ""
    if scan.lengths:
        shortest, longest = scan.lengths[0][0], scan.lengths[-1][0]
        lengths = f"; lengths {shortest} to {longest}, half of them up to {scan.percentile(50)}"
    roughly = "at least " if scan.more else "about " if partly else ""
    count = "endless" if scan.samples >= ENDLESS else f"{roughly}{scan.samples:,}"
    notices = [f"data: {count} samples{lengths}{partly}"]
    if len(scan.lengths) < 2:
        return notices
    if spec.space.sequence_lengths is None:
        notices.append(
            f"every batch is padded to the longest sample, {scan.lengths[-1][0]}; "
            "search.sequence_length: {percentiles: [90, 95, 99, 100]} would search shorter ones, and find buckets"
        )
    elif spec.model.trains_itself and spec.space.most_buckets:
        notices.append("no buckets: a train_step is built for one length")
    return notices
