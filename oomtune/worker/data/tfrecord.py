"""Read TFRecord files of `tf.train.Example`."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from oomtune.domain import Feature, TfrecordData, by_name
from oomtune.errors import DataUnreadable
from oomtune.worker.data.samples import Checker, RawSample, checked_samples
from oomtune.worker.data.source import (
    Axis,
    Bounds,
    Stream,
    decode_text,
    each_side,
    files_of,
    missing,
    tensorflow_reason,
    unreadable,
)

_KEY = "dataset.tfrecord.path"
# The length of a record, its checksum, and the checksum of the record.
_FRAME_BYTES = 16
# Fetching records one by one is slow.
_RECORDS_AT_ONCE = 256
_PIECE_BYTES = 1024**2
_WRITE_AGAIN = "the file is damaged, cut short, or not a TFRecord file; write it again"
_GZIP_MAGIC = b"\x1f\x8b"
_LISTS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}
_DTYPES = {name: dtype for dtype, name in _LISTS.items()}


def tfrecord_source(data: TfrecordData, folder: str, bounds: Bounds) -> Stream:
    files = files_of(data.paths, folder, _KEY)
    records = _Records(files, data.compression)
    checker = Checker("dataset.tfrecord", data.inputs, data.targets)

    def read(records: _Records) -> Iterator[RawSample]:
        return (_sample(record, data, where) for record, where in islice(records.read(), bounds.samples))

    return Stream(
        samples=checked_samples(
            read(records), checker, data.tokenizer, folder, reread=lambda: read(_Records(files, data.compression))
        ),
        name=str(files[0]),
        key=_KEY,
        share_read=lambda count: max(records.share_read(), count / bounds.samples),
        estimate_total=lambda count: None if count < bounds.samples else records.estimate_total(count),
        axes={name: _axis(data.features[feature]) for name, feature in by_name(data.inputs).items()},
    )


def _axis(feature: Feature) -> Axis:
    return Axis.VARIES if feature.dtype == "string" or feature.shape[:1] == (None,) else Axis.FIXED


class _Records:
    """Reads the records of files, and tracks how much was read."""

    def __init__(self, files: list[Path], compression: str) -> None:
        self._files = files
        self._is_gzip = compression == "gzip"
        self._total_bytes = sum(_unpacked_bytes(file) if self._is_gzip else file.stat().st_size for file in files)
        self._read_bytes = 0

    def share_read(self) -> float:
        return min(1.0, self._read_bytes / max(1, self._total_bytes))

    def estimate_total(self, count: int) -> int | None:
        if self._read_bytes >= self._total_bytes:
            return None
        return round(count * self._total_bytes / max(1, self._read_bytes))

    def read(self) -> Iterator[tuple[bytes, str]]:
        """Yield each record and its place."""
        for file in self._files:
            before, number = self._read_bytes, 0
            for number, record in enumerate(self._read_file(file), 1):
                self._read_bytes += len(record) + _FRAME_BYTES
                yield record, f"{file}, record {number}"
            if self._is_gzip:
                _refuse_cut_gzip(file, self._read_bytes - before, number)

    def _read_file(self, file: Path) -> Iterator[bytes]:
        records = tf.data.TFRecordDataset(str(file), compression_type="GZIP" if self._is_gzip else "")
        number = 0
        try:
            for batch in records.batch(_RECORDS_AT_ONCE).as_numpy_iterator():
                number += len(batch)
                yield from batch
        except tf.errors.OpError:
            # A record of this batch is damaged. Read one by one, to use the records before it and to find its number.
            try:
                for record in records.skip(number).as_numpy_iterator():
                    number += 1
                    yield record
            except tf.errors.OpError as error:
                raise self._damaged(file, number + 1, error) from None

    def _damaged(self, file: Path, number: int, error: Exception) -> DataUnreadable:
        with file.open("rb") as opened:
            is_gzip = opened.read(2) == _GZIP_MAGIC
        if is_gzip and not self._is_gzip:
            return DataUnreadable(f"{file} is compressed ({_KEY})", hint="set dataset.tfrecord.compression to gzip")
        if self._is_gzip and not is_gzip:
            return DataUnreadable(
                f"{file} is not compressed with gzip ({_KEY})", hint="set dataset.tfrecord.compression to none"
            )
        return unreadable(f"{file}, record {number}", tensorflow_reason(error), _KEY, _WRITE_AGAIN)


def _unpacked_bytes(file: Path) -> int:
    size = file.stat().st_size
    return size if size < 4 else max(size, _unpacked_bytes_modulo(file))


def _unpacked_bytes_modulo(file: Path) -> int:
    """Return the last four bytes of a gzip file: the size of its content, modulo 2^32."""
    with file.open("rb") as packed:
        packed.seek(-4, 2)
        return int.from_bytes(packed.read(4), "little")


def _refuse_cut_gzip(file: Path, unpacked_bytes: int, records: int) -> None:
    """Raise if the file is cut short between two records, which TensorFlow takes for its end."""
    if file.stat().st_size < 4 or unpacked_bytes % 2**32 == _unpacked_bytes_modulo(file):
        return
    try:
        with gzip.open(file) as packed:
            while packed.read(_PIECE_BYTES):
                pass
    except (EOFError, OSError, zlib.error) as error:
        raise unreadable(f"{file}, after record {records}", error, _KEY, _WRITE_AGAIN) from None


def _sample(record: bytes, data: TfrecordData, where: str) -> RawSample:
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise unreadable(
            where, "not a tf.train.Example", _KEY, "write records with tf.train.Example.SerializeToString"
        ) from None
    return each_side(data, lambda side, name: _value(features, side, name, data.features[name], where)), where


def _value(features: Any, side: str, name: str, feature: Feature, where: str) -> Any:
    key = f"dataset.tfrecord.{side}"
    if name not in features:
        raise missing(where, "feature", name, key, list(features))
    kind = features[name].WhichOneof("kind")
    varies = feature.shape[:1] == (None,)
    if kind != _LISTS[feature.dtype] and not (kind is None and varies):
        raise DataUnreadable(
            f"{where}: feature {name!r} has {_DTYPES.get(kind, 'no')} values, not {feature.dtype} ({key})",
            hint=f"change dataset.tfrecord.features.{name}.dtype",
        )
    values = getattr(features[name], _LISTS[feature.dtype]).value
    sample_size = int(np.prod([size for size in feature.shape if size is not None]))
    if len(values) % sample_size if varies else len(values) != sample_size:
        shape = ", ".join("null" if size is None else str(size) for size in feature.shape)
        raise DataUnreadable(
            f"{where}: feature {name!r} has {len(values)} values, which do not fill the shape [{shape}] ({key})",
            hint=f"change dataset.tfrecord.features.{name}.shape; null is an axis that varies",
        )
    if feature.dtype == "string":
        return decode_text(values[0], name, where, key)
    return np.array(values, dtype=feature.dtype).reshape([-1 if size is None else size for size in feature.shape])
