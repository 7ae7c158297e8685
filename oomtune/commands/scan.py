"""Reading the data once, before the search: asked of a worker, and kept until the data changes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from oomtune.domain import ENDLESS, ProbeSpec, PythonData, Scan, ScanOrder, SyntheticData
from oomtune.domain.observer import Observer
from oomtune.errors import OutputNotWritable, Problem, SpecProblem, WorkerBroken
from oomtune.trials.ask import ask
from oomtune.trials.runner import TimeUp
from oomtune.trials.worker_host import WorkerHost

_SCAN = TypeAdapter(Scan)
_TIMEOUT_S = 24 * 3600.0
# Of the samples that a scan keeps beside what it showed: one more for each change to how they are written.
_ROWS_FORMAT = 3


def scan_data(
    spec: ProbeSpec,
    key: Mapping[str, Any],
    folder: Path,
    host: WorkerHost,
    observer: Observer,
    *,
    deadline: float | None = None,
) -> Scan | None:
    """What the data is like; None for data that is made up, or that the model's own code reads.

    `key` is all that decides what a scan would show: one that was kept under it in `folder` is taken instead. What a
    function of the user's own returns is read anew each time, as nobody knows what it depends on. Raises `TimeUp` when
    the deadline, on the clock of `time.monotonic`, comes first.
    """
    dataset = spec.dataset
    if dataset is None or isinstance(dataset, SyntheticData):
        return None
    decides = {**key, "rows": _ROWS_FORMAT}
    name = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:16]
    kept, rows = folder / "scans" / f"{name}.json", folder / "scans" / f"{name}.npz"
    if not isinstance(dataset, PythonData) and (known := _kept(kept, rows)) is not None:
        return known
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        order = ScanOrder(dataset=dataset, folder=spec.folder, rows_path=str(rows))
        scan = _asked(host, order, observer, deadline)
        kept.write_text(json.dumps(_SCAN.dump_python(scan, mode="json")))
    except OSError as error:
        raise OutputNotWritable(
            f"what a scan of the data showed can't be kept in {kept.parent}: {error.strerror}",
            hint="free disk space, or make a folder .oomtune beside the spec",
        ) from None
    return scan


def _asked(host: WorkerHost, order: ScanOrder, observer: Observer, deadline: float | None) -> Scan:
    host.wait_until_ready()
    left_s = _TIMEOUT_S if deadline is None else deadline - time.monotonic()
    if left_s <= 0:
        raise TimeUp
    try:
        return ask(host, "scan", order, Scan, timeout_s=left_s, watch=lambda note: _tell(note, observer))
    except WorkerBroken:
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeUp from None
        raise


def _kept(kept: Path, rows: Path) -> Scan | None:
    try:
        return _SCAN.validate_python(json.loads(kept.read_bytes())) if rows.is_file() else None
    except (OSError, ValueError):
        return None


def _tell(note: bytes, observer: Observer) -> None:
    if note:
        said = json.loads(note)
        observer.data_read(said["samples"], said["share"])


def with_data(spec: ProbeSpec, scan: Scan | None, place: Callable[[str], str]) -> ProbeSpec:
    """The spec with what its data decides: how large a batch may be, and which lengths percentiles stand for. `place`
    tells where an entry of the spec was written."""
    if scan is None:
        return spec
    space = spec.space
    batches = space.batch_sizes[: bisect_right(space.batch_sizes, scan.samples)]
    if not batches:
        message = f"the smallest is {space.batch_sizes[0]}, and the dataset has {scan.samples} samples"
        raise _wrong("search.batch_size", message, place)
    lengths = space.sequence_lengths
    if spec.length_percentiles:
        if not scan.lengths:
            raise _wrong("search.sequence_length.percentiles", "the samples of this dataset have no length", place)
        multiple = spec.length_multiple_of
        asked = (scan.percentile(percent) for percent in spec.length_percentiles)
        found = sorted({math.ceil(length / multiple) * multiple for length in asked})
        lengths = tuple(length for length in found if length >= spec.min_sequence_length)
        if not lengths:
            message = f"expected at most {found[-1]}, the longest that the percentiles give"
            raise _wrong("search.min_sequence_length", f"{message}; got {spec.min_sequence_length}", place)
    # A loop of the user's own gets its length from the factory, once.
    counts = () if lengths is None or spec.model.trains_itself else scan.lengths
    changed = dataclasses.replace(space, batch_sizes=batches, sequence_lengths=lengths, length_counts=counts)
    return dataclasses.replace(spec, space=changed, scan=scan)


def _wrong(key: str, message: str, place: Callable[[str], str]) -> SpecProblem:
    return SpecProblem([Problem(where=place(key), key=key, message=message)])


def said_of(scan: Scan, spec: ProbeSpec) -> list[str]:
    """What the user should know of the data before the search begins."""
    some = "" if scan.all_read else f", of which {scan.read:,} were read: what is said of lengths is an estimate"
    lengths = ""
    if scan.lengths:
        shortest, longest = scan.lengths[0][0], scan.lengths[-1][0]
        lengths = f"; lengths {shortest} to {longest}, half of them up to {scan.percentile(50)}"
    roughly = "at least " if scan.more else "about " if some else ""
    many = "endless" if scan.samples >= ENDLESS else f"{roughly}{scan.samples:,}"
    notes = [f"data: {many} samples{lengths}{some}"]
    if len(scan.lengths) < 2:
        return notes
    if spec.space.sequence_lengths is None:
        notes.append(
            f"every batch is padded to the longest sample, {scan.lengths[-1][0]}; "
            "search.sequence_length: {percentiles: [90, 95, 99, 100]} would search shorter ones, and find buckets"
        )
    elif spec.model.trains_itself and spec.space.most_buckets:
        notes.append("no buckets: a train_step is made for one length")
    return notes
