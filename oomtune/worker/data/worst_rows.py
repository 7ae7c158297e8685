"""The worst samples of a dataset, kept in a file between the scan that found them and the trials that train on them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.worker.data.nesting import Nest, layout, mapped, parts
from oomtune.worker.data.source import SIDES, Arrays, Sample

_ABOUT = "about"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstSamples:
    """Whole arrays of samples, padded to the longest; `sequences` names those whose axis 1 is the length."""

    sides: Sample
    sequences: frozenset[str]

    def at(self, count: int, length: int | None) -> Sample:
        """So many samples, cut or padded to this length; to their own when there is none to search."""
        return self._each(lambda array, by_step: _fit_length(array[:count], length if by_step else None), self.sides)

    def cut(self, sample: tuple[Any, ...], length: tf.Tensor) -> tuple[Any, ...]:
        """The tensors of one sample with its sequences cut to a length, each in memory of its own: a slice would share
        that of all samples, where those that are read from a file have their own."""

        def one(tensor: tf.Tensor, by_step: bool) -> tf.Tensor:
            if by_step:
                return tf.gather(tensor, tf.range(length))
            return tf.gather(tensor[tf.newaxis], tf.minimum(length, 0))

        return self._each(one, sample)

    def _each(self, function: Callable[[Any, bool], Any], sides: tuple[Any, ...]) -> tuple[Any, ...]:
        """What the function makes of each part, and of whether it is as long as its sample."""

        def made(side: str, nest: Nest) -> Nest:
            return mapped(lambda name, part: function(part, f"{side}.{name}" in self.sequences), nest)

        return tuple(made(side, nest) for side, nest in zip(SIDES, sides, strict=False))


def save(samples: list[Sample], sequences: Sequence[str], path: Path) -> None:
    """Write the samples whole or not at all, for the user's eyes alone. Nothing is pickled."""
    arrays: dict[str, Any] = {}
    for side, *nests in zip(SIDES, *samples, strict=False):
        kept = [parts(nest) for nest in nests]
        arrays |= {f"{side}.{name}": _stacked([one[name] for one in kept]) for name in kept[0]}
    layouts = [layout(nest) for nest in samples[0]]
    # NumPy's files know no bfloat16: they keep its bytes, and not what they stand for.
    types = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
    about = {"sequences": list(sequences), "layouts": layouts, "types": types}
    arrays[_ABOUT] = np.array(json.dumps(about))
    draft = path.with_suffix(f".{os.getpid()}.npz")  # called like the others, so that a clean-up finds what is left
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        np.savez(file, **arrays)
    draft.replace(path)


def load(path: Path) -> WorstSamples:
    with np.load(path, allow_pickle=False) as archive:
        about = json.loads(str(archive[_ABOUT]))
        types = about["types"]
        sides = tuple(_loaded(archive, side, nest, types) for side, nest in zip(SIDES, about["layouts"], strict=False))
    return WorstSamples(sides=sides, sequences=frozenset(about["sequences"]))


def _loaded(archive: Any, side: str, nest: Nest, types: dict[str, str]) -> Arrays:
    def one(name: str) -> Any:
        array, kind = archive[f"{side}.{name}"], types.get(f"{side}.{name}")
        return array if kind is None else array.view(tf.as_dtype(kind).as_numpy_dtype)

    return mapped(lambda _, name: one(name), nest)


def _stacked(arrays: list[Any]) -> Any:
    longest = max((len(array) for array in arrays if array.ndim), default=0)
    return np.stack([_fit_length(array[np.newaxis], longest)[0] if array.ndim else array for array in arrays])


def _fit_length(array: Any, length: int | None) -> Any:
    """Cut or pad axis 1 to a length."""
    if length is None or array.ndim < 2:
        return array
    cut = array[:, :length]
    return np.pad(cut, [(0, 0), (0, length - cut.shape[1])] + [(0, 0)] * (cut.ndim - 2))
