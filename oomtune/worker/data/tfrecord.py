"""Files of tf.train.Example."""

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

from oomtune.domain import Feature, TfrecordData, Tokenizer
from oomtune.errors import DataUnreadable
from oomtune.worker.data.problems import files_of, not_there, reason_of, unreadable
from oomtune.worker.data.samples import Checker, Count, Raw, finished, texts_in
from oomtune.worker.data.source import Axis, Bounds, Source, by_name, each
from oomtune.worker.data.tokens import tokenize_with

_KEY = "dataset.tfrecord.path"
# A record's length, and a checksum of it and of the record.
_FRAME_BYTES = 16
# Records cost most when they are fetched one by one.
_AT_ONCE = 256
_PIECE_BYTES = 1024**2
_WRITE_AGAIN = "the file is damaged or cut short, or no TFRecord file; write it again"
_GZIP = b"\x1f\x8b"
_LISTS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}
_KINDS = {"int64_list": "int64", "float_list": "float32", "bytes_list": "string"}


def tfrecord_source(data: TfrecordData, tokenizer: Tokenizer, folder: str, bounds: Bounds) -> Source:
    files = files_of(data.paths, folder, _KEY)
    records, count = _Records(files, data.compression), Count()

    def samples(records: _Records) -> Iterator[Raw]:
        return (_sample(record, data, where) for record, where in islice(records.read(), bounds.samples))

    tokenize = tokenize_with(tokenizer, folder, lambda: texts_in(samples(_Records(files, data.compression))))
    checker = Checker("dataset.tfrecord", data.inputs, data.targets)
    return Source(
        samples=count.over(finished(samples(records), checker, tokenize)),
        share_read=lambda: max(records.share_read(), count.given / bounds.samples),
        partial=lambda: None if count.given < bounds.samples else records.in_all(count.given),
        where=lambda: checker.where,
        name=str(files[0]),
        key=_KEY,
        axes={name: _axis(data.features[feature]) for name, feature in by_name(data.inputs).items()},
    )


def _axis(feature: Feature) -> Axis:
    varies = feature.dtype == "string" or feature.shape[:1] == (None,)
    return Axis.VARIES if varies else Axis.FIXED


class _Records:
    """The records of some files, and how much of them has been read."""

    def __init__(self, files: list[Path], compression: str) -> None:
        self._files = files
        self._compression = compression
        self._total = sum(_unpacked_bytes(file, compression) for file in files)
        self._done = 0

    def share_read(self) -> float:
        return min(1.0, self._done / max(1, self._total))

    def in_all(self, count: int) -> int | None:
        return None if self._done >= self._total else round(count * self._total / max(1, self._done))

    def read(self) -> Iterator[tuple[bytes, str]]:
        for file in self._files:
            before, number = self._done, 0
            for number, record in enumerate(self._of(file), 1):
                self._done += len(record) + _FRAME_BYTES
                yield record, f"{file}, record {number}"
            if self._compression == "gzip":
                _refuse_a_cut(file, self._done - before, number)

    def _of(self, file: Path) -> Iterator[bytes]:
        records = tf.data.TFRecordDataset(str(file), compression_type="GZIP" if self._compression == "gzip" else "")
        number = 0
        try:
            for batch in records.batch(_AT_ONCE).as_numpy_iterator():
                number += len(batch)
                yield from batch
        except tf.errors.OpError:
            # One of these is damaged: those before it are good, and the place of it is wanted.
            try:
                for record in records.skip(number).as_numpy_iterator():
                    number += 1
                    yield record
            except tf.errors.OpError as error:
                raise _damaged(file, number, self._compression, error) from None


def _unpacked_bytes(file: Path, compression: str) -> int:
    size = file.stat().st_size
    return size if compression == "none" or size < 4 else max(size, _said_to_unpack_to(file))


def _said_to_unpack_to(file: Path) -> int:
    with file.open("rb") as packed:
        # The last four bytes of a gzip file say how much it unpacks to.
        packed.seek(-4, 2)
        return int.from_bytes(packed.read(4), "little")


def _refuse_a_cut(file: Path, unpacked_bytes: int, records: int) -> None:
    """To TensorFlow a packed file that is cut short between two records is at its end."""
    if file.stat().st_size < 4 or unpacked_bytes % 2**32 == _said_to_unpack_to(file):
        return
    try:
        with gzip.open(file) as packed:
            while packed.read(_PIECE_BYTES):
                pass
    except (EOFError, OSError, zlib.error) as error:
        raise unreadable(f"{file}, after record {records}", error, _KEY, _WRITE_AGAIN) from None


def _damaged(file: Path, number: int, compression: str, error: Exception) -> DataUnreadable:
    with file.open("rb") as opened:
        packed = opened.read(2) == _GZIP
    if packed and compression == "none":
        return DataUnreadable(f"{file} is compressed ({_KEY})", hint="set dataset.tfrecord.compression to gzip")
    if not packed and compression == "gzip":
        message = f"{file} is not compressed with gzip ({_KEY})"
        return DataUnreadable(message, hint="set dataset.tfrecord.compression to none")
    return unreadable(
        f"{file}, record {number + 1}",
        reason_of(error),
        _KEY,
        _WRITE_AGAIN,
    )


def _sample(record: bytes, data: TfrecordData, where: str) -> Raw:
    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        raise unreadable(
            where, "not a tf.train.Example", _KEY, "expected records as tf.train.Example.SerializeToString"
        ) from None
    inputs = each(lambda name: _value(features, "inputs", name, data.features[name], where), data.inputs)
    targets = each(lambda name: _value(features, "targets", name, data.features[name], where), data.targets)
    return (inputs, targets), where


def _value(features: Any, side: str, name: str, feature: Feature, where: str) -> Any:
    key = f"dataset.tfrecord.{side}"
    if name not in features:
        raise not_there(where, "feature", name, key, list(features))
    kind = features[name].WhichOneof("kind")
    varies = feature.shape[:1] == (None,)
    if kind != _LISTS[feature.dtype] and not (kind is None and varies):
        raise DataUnreadable(
            f"{where}: feature {name!r} holds {_KINDS.get(kind, 'nothing')}, not {feature.dtype} ({key})",
            hint=f"change dataset.tfrecord.features.{name}.dtype",
        )
    values = getattr(features[name], _LISTS[feature.dtype]).value
    wanted = int(np.prod([size for size in feature.shape if size is not None]))
    if len(values) % wanted if varies else len(values) != wanted:
        shape = ["null" if size is None else size for size in feature.shape]
        raise DataUnreadable(
            f"{where}: feature {name!r} has {len(values)} values, which do not make a shape of"
            f" [{', '.join(map(str, shape))}] ({key})",
            hint=f"change dataset.tfrecord.features.{name}.shape; null is an axis that varies",
        )
    if feature.dtype == "string":
        return _text(values[0], name, where, key)
    return np.array(values, dtype=feature.dtype).reshape([-1 if size is None else size for size in feature.shape])


def _text(value: bytes, name: str, where: str, key: str) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise unreadable(
            where, f"feature {name!r} is not UTF-8 text", key, "only text is read from string features"
        ) from None
