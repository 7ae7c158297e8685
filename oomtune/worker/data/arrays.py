"""Read whole arrays from .npz archives and .npy files, and check arrays that a user's function returns."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oomtune.domain import NpyData, NpzData, by_name
from oomtune.errors import DataUnreadable
from oomtune.worker.data.source import SIDES, HeldArrays, Sample, each_side, files_of, missing, unreadable
from oomtune.worker.nesting import Nest, map_parts, parts

# An archive may also be encrypted, or use a compression that Python lacks.
_READ_ERRORS = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)
_NO_OBJECTS = "the file is damaged, or contains Python objects, which are never unpickled; save plain numbers"
# Check this many values at a time for NaN, to use little memory beside the array.
_VALUES_AT_ONCE = 2**24
_NO_NAMES: Mapping[str, str] = {}


def npz_source(data: NpzData, folder: str) -> HeldArrays:
    files = files_of(data.paths, folder, "dataset.npz.path")

    def read(side: str, name: str) -> Any:
        key = f"dataset.npz.{side}"
        return _concatenate(((file, repr(name), _read_npz(file, name, key)) for file in files), key)

    arrays = each_side(data, read)
    array_names = {
        f"{side}.{part}": name
        for side, names in (("inputs", data.inputs), ("targets", data.targets))
        for part, name in by_name(names).items()
    }
    check_sample_counts(arrays, str(files[0]), "dataset.npz", array_names)
    return HeldArrays(arrays=arrays)


def npy_source(data: NpyData, folder: str) -> HeldArrays:
    def read(side: str, paths: tuple[str, ...]) -> Any:
        key = f"dataset.npy.{side}"
        return _concatenate(((file, "the array", _read_npy(file, key)) for file in files_of(paths, folder, key)), key)

    arrays = each_side(data, read)
    first = next(iter(by_name(data.inputs).values()))[0]
    check_sample_counts(arrays, str(Path(folder, first)), "dataset.npy")
    return HeldArrays(arrays=arrays)


def check_sample_counts(arrays: Sample, name: str, key: str, array_names: Mapping[str, str] = _NO_NAMES) -> None:
    """Raise `DataUnreadable` unless all arrays have the same number of samples, and at least one.

    `array_names` maps parts such as `inputs.words` to the names of their arrays.
    """
    counts = {
        array_names.get(f"{side}.{part}") or f"{side}.{part}".rstrip("."): int(array.shape[0])
        for side, nest in zip(SIDES, arrays, strict=False)
        for part, array in parts(nest).items()
    }
    first, count = next(iter(counts.items()))
    for other, other_count in counts.items():
        if other_count != count:
            raise DataUnreadable(
                f"{name}: {first!r} has {count} samples and {other!r} has {other_count} ({key})",
                hint="all arrays need one entry per sample",
            )
    if count == 0:
        raise DataUnreadable(f"{name}: {first!r} holds no samples ({key})", hint="expected one entry per sample")


def row_of(arrays: Nest, row: int) -> Nest:
    """Return one sample as a copy, so that it does not keep the whole arrays in memory."""
    return map_parts(lambda _, array: np.array(array[row]), arrays)


def checked_array(array: Any, where: str, key: str, *, allow_text: bool = False) -> Any:
    """Return the array if it has one entry per sample and all its numbers are finite."""
    if array.ndim == 0:
        raise DataUnreadable(f"{where} is a single number, not one entry per sample ({key})", hint="expected an array")
    if array.dtype.kind not in ("biufSU" if allow_text else "biuf"):
        raise DataUnreadable(
            f"{where} has the type {array.dtype}, not numbers ({key})", hint="save whole numbers or floats"
        )
    if array.dtype.kind == "f":
        _check_finite(array, where, key)
    return array


def _check_finite(array: Any, where: str, key: str) -> None:
    rows = max(1, _VALUES_AT_ONCE * len(array) // max(1, array.size))
    for start in range(0, len(array), rows):
        block = array[start : start + rows]
        finite = np.isfinite(block)
        if finite.all():
            continue
        index = tuple(int(place) for place in np.argwhere(~finite)[0])
        row, position = index[0], list(index[1:])
        value = "NaN" if np.isnan(block[index]) else "infinite"
        inside = f", at {position}" if position else ""
        raise DataUnreadable(
            f"{where} is {value} in row {start + row}{inside}, counting rows from 0 ({key})",
            hint="training on it would give a loss of NaN; remove the sample or replace the value",
        )


def _read_npz(file: Path, name: str, key: str) -> Any:
    try:
        # NumPy does not close a file that it fails to read.
        with file.open("rb") as opened:
            archive = np.load(opened, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataUnreadable(f"{file} is not an .npz archive ({key})", hint="write it with numpy.savez")
            if name not in archive.files:
                raise missing(file, "array", name, key, archive.files)
            array = archive[name]
    except _READ_ERRORS as error:
        raise unreadable(f"{file}: {name!r}", error, key, _NO_OBJECTS) from None
    return checked_array(array, f"{file}: {name!r}", key)


def _read_npy(file: Path, key: str) -> Any:
    try:
        with file.open("rb") as opened:
            array = np.load(opened, allow_pickle=False)
    except _READ_ERRORS as error:
        raise unreadable(file, error, key, _NO_OBJECTS) from None
    if not isinstance(array, np.ndarray):
        raise DataUnreadable(f"{file} is an .npz archive ({key})", hint="use dataset.npz for it")
    return checked_array(array, f"{file}: the array", key)


def _concatenate(arrays: Iterator[tuple[Path, str, Any]], key: str) -> Any:
    """Join the arrays of several files along the axis of samples."""
    (first_file, _, first), *others = arrays
    for file, name, array in others:
        if array.shape[1:] != first.shape[1:]:
            raise DataUnreadable(
                f"{file}: {name} has samples of shape {list(array.shape[1:])}, but {first_file} has samples of shape"
                f" {list(first.shape[1:])} ({key})",
                hint="files that are read together need samples of one shape; pad them, or name one file",
            )
    return np.concatenate([first, *(array for _, _, array in others)]) if others else first
