"""Whole arrays: NumPy archives, NumPy files, and what a function of the user's returned."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from oomtune.domain import ArrayNames, NpyData, NpzData
from oomtune.errors import DataUnreadable
from oomtune.worker.data.nesting import mapped, parts
from oomtune.worker.data.problems import files_of, not_there, unreadable
from oomtune.worker.data.source import SIDES, Arrays, Sample, Source, by_name, each

# An archive may also be encrypted, or packed in a way that Python can't unpack.
_DAMAGED = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)
_NO_OBJECTS = "the file is damaged, or holds objects, which are never unpickled; save plain numbers with numpy"
# Values looked at together for NaN: what this needs for itself stays small.
_VALUES_AT_ONCE = 2**24


def npz_source(data: NpzData, folder: str) -> Source:
    files = files_of(data.paths, folder, "dataset.npz.path")

    def array(name: str, key: str) -> Any:
        return _joined(_from_archives(files, name, key), key)

    inputs = each(lambda name: array(name, "dataset.npz.inputs"), data.inputs)
    targets = each(lambda name: array(name, "dataset.npz.targets"), data.targets)
    called = {**_called("inputs", data.inputs), **_called("targets", data.targets)}
    return held_source((inputs, targets), name=str(files[0]), key="dataset.npz", called=called)


def npy_source(data: NpyData, folder: str) -> Source:
    def array(paths: tuple[str, ...], key: str) -> Any:
        return _joined(((file, "the array", _from_file(file, key)) for file in files_of(paths, folder, key)), key)

    inputs = each(lambda paths: array(paths, "dataset.npy.inputs"), data.inputs)
    targets = each(lambda paths: array(paths, "dataset.npy.targets"), data.targets)
    first = next(iter(by_name(data.inputs).values()))[0]
    return held_source((inputs, targets), name=str(Path(folder, first)), key="dataset.npy", called={})


def held_source(held: Sample, *, name: str, key: str, called: dict[tuple[str, str], str]) -> Source:
    """Arrays in memory, as long as each other. `called` has what the user calls them, by side and name."""
    sides = zip(SIDES, held, strict=False)
    everything = [((side, name), array) for side, arrays in sides for name, array in parts(arrays).items()]
    words = [called.get(place) or ".".join(filter(None, place)) for place, _ in everything]
    count = len(everything[0][1])
    for (_, array), word in zip(everything, words, strict=True):
        if len(array) != count:
            raise DataUnreadable(
                f"{name}: {words[0]!r} has {count} samples and {word!r} has {len(array)} ({key})",
                hint="all arrays need one entry a sample",
            )
    if count == 0:
        raise DataUnreadable(f"{name}: {words[0]!r} holds no samples ({key})", hint="expected one entry a sample")
    return Source(held=held, name=name, key=key)


def row_of(arrays: Arrays, at: int) -> Arrays:
    """One sample of whole arrays, as a copy: kept by itself it does not keep the whole."""
    return mapped(lambda _, array: np.array(array[at]), arrays)


def usable(array: Any, where: str, key: str, *, text: bool = False) -> Any:
    """The array, if it has one entry a sample and every number in it is one. Text is a model's own affair."""
    if array.ndim == 0:
        raise DataUnreadable(f"{where} is a single number, not one entry a sample ({key})", hint="expected an array")
    if array.dtype.kind not in ("biufSU" if text else "biuf"):
        raise DataUnreadable(
            f"{where} has the type {array.dtype}, not numbers ({key})", hint="save whole numbers or floats"
        )
    if array.dtype.kind == "f":
        _refuse_what_is_not_finite(array, where, key)
    return array


def _refuse_what_is_not_finite(array: Any, where: str, key: str) -> None:
    rows = max(1, _VALUES_AT_ONCE * len(array) // max(1, array.size))
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        finite = np.isfinite(part)
        if finite.all():
            continue
        first = np.argwhere(~finite)[0]
        found = "NaN" if np.isnan(part[tuple(first)]) else "infinite"
        inside = f", at {[int(index) for index in first[1:]]}" if len(first) > 1 else ""
        raise DataUnreadable(
            f"{where} is {found} in row {start + int(first[0])}{inside}, where rows count from 0 ({key})",
            hint="training on it would give a loss of NaN; remove the sample or fill in a number",
        )


def _from_archives(files: list[Path], name: str, key: str) -> Iterator[tuple[Path, str, Any]]:
    for file in files:
        try:
            # Opened here: what NumPy opens and then can't read, it does not close.
            with file.open("rb") as opened:
                archive = np.load(opened, allow_pickle=False)
                if not isinstance(archive, np.lib.npyio.NpzFile):
                    raise DataUnreadable(f"{file} is not an .npz archive ({key})", hint="write it with numpy.savez")
                if name not in archive.files:
                    raise not_there(file, "array", name, key, archive.files)
                array = archive[name]
        except _DAMAGED as error:
            raise unreadable(f"{file}: {name!r}", error, key, _NO_OBJECTS) from None
        yield file, repr(name), usable(array, f"{file}: {name!r}", key)


def _from_file(file: Path, key: str) -> Any:
    try:
        with file.open("rb") as opened:
            array = np.load(opened, allow_pickle=False)
    except _DAMAGED as error:
        raise unreadable(file, error, key, _NO_OBJECTS) from None
    if not isinstance(array, np.ndarray):
        raise DataUnreadable(f"{file} is an .npz archive ({key})", hint="use dataset.npz for it")
    return usable(array, f"{file}: the array", key)


def _joined(parts: Iterator[tuple[Path, str, Any]], key: str) -> Any:
    """The arrays of several files, one after the other."""
    (first_file, _, first), *others = parts
    for file, what, array in others:
        if array.shape[1:] != first.shape[1:]:
            raise DataUnreadable(
                f"{file}: {what} has samples of the shape {list(array.shape[1:])},"
                f" and {list(first.shape[1:])} in {first_file} ({key})",
                hint="files that are read together need samples of one shape; pad them, or name one file",
            )
    return np.concatenate([first, *(array for _, _, array in others)]) if others else first


def _called(side: str, names: ArrayNames) -> dict[tuple[str, str], str]:
    return {(side, key): name for key, name in by_name(names).items()}
