"""The worst samples of a dataset, kept in a file between the scan that found them and the trials that train on them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.worker.sources.source import Arrays, Sample, by_name

_ABOUT = "about"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstSamples:
    """Whole arrays of samples, padded to the longest; `sequences` names those whose axis 1 is the length."""

    inputs: Arrays
    targets: Arrays
    sequences: frozenset[str]

    def at(self, count: int, length: int | None) -> tuple[Arrays, Arrays]:
        """So many samples, cut or padded to this length; to their own when there is none to search."""
        return self._side("inputs", self.inputs, count, length), self._side("targets", self.targets, count, length)

    def cut(self, sample: tuple[Any, Any], length: tf.Tensor) -> tuple[Any, Any]:
        """The tensors of one sample with its sequences cut to a length, each in memory of its own: a slice would share
        that of all samples, where those that are read from a file have their own."""
        cut = []
        for side, tensors in zip(("inputs", "targets"), sample, strict=True):
            made = {
                name: tf.gather(tensor, tf.range(length))
                if f"{side}.{name}" in self.sequences
                else tf.gather(tensor[tf.newaxis], tf.minimum(length, 0))
                for name, tensor in by_name(tensors).items()
            }
            cut.append(made if isinstance(tensors, dict) else made[""])
        return cut[0], cut[1]

    def _side(self, side: str, arrays: Arrays, count: int, length: int | None) -> Arrays:
        made = {
            name: _fit_length(array[:count], length if f"{side}.{name}" in self.sequences else None)
            for name, array in by_name(arrays).items()
        }
        return made if isinstance(arrays, dict) else made[""]


def save(samples: list[Sample], sequences: Sequence[str], path: Path) -> None:
    """Write the samples whole or not at all, for the user's eyes alone. Nothing is pickled."""
    arrays: dict[str, Any] = {}
    single = []
    for index, side in enumerate(("inputs", "targets")):
        first = samples[0][index]
        single += [] if isinstance(first, dict) else [side]
        for name in by_name(first):
            arrays[f"{side}.{name}"] = _stacked([by_name(sample[index])[name] for sample in samples])
    arrays[_ABOUT] = np.array(json.dumps({"sequences": list(sequences), "single": single}))
    draft = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        np.savez(file, **arrays)
    draft.replace(path)


def load(path: Path) -> WorstSamples:
    with np.load(path, allow_pickle=False) as archive:
        about = json.loads(str(archive[_ABOUT]))
        sides = {}
        for side in ("inputs", "targets"):
            arrays = {key.removeprefix(f"{side}."): archive[key] for key in archive.files if key.startswith(f"{side}.")}
            sides[side] = arrays[""] if side in about["single"] else arrays
    return WorstSamples(**sides, sequences=frozenset(about["sequences"]))


def _stacked(arrays: list[Any]) -> Any:
    longest = max((len(array) for array in arrays if array.ndim), default=0)
    return np.stack([_fit_length(array[np.newaxis], longest)[0] if array.ndim else array for array in arrays])


def _fit_length(array: Any, length: int | None) -> Any:
    """Cut or pad axis 1 to a length."""
    if length is None or array.ndim < 2:
        return array
    cut = array[:, :length]
    return np.pad(cut, [(0, 0), (0, length - cut.shape[1])] + [(0, 0)] * (cut.ndim - 2))
