"""Save the longest samples of a scan, and load them for trials."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from oomtune.worker.data.source import SIDES, Sample
from oomtune.worker.nesting import Nest, map_parts, parts

_ABOUT = "about"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstSamples:
    """Samples as whole arrays, padded to the longest. `sequences` names the parts whose axis 1 is the length."""

    sides: Sample
    sequences: frozenset[str]

    def at(self, count: int, length: int | None) -> Sample:
        """Return this many samples, cut or padded to the length. None keeps their own length."""
        return self._map(lambda array, by_step: _fit_length(array[:count], length if by_step else None), self.sides)

    def cut(self, sample: tuple[Any, ...], length: tf.Tensor) -> tuple[Any, ...]:
        """Return one sample with its sequences cut to the length, copied to its own memory.

        A slice would share the memory of all samples, unlike the samples that training reads.
        """

        def cut_part(tensor: tf.Tensor, by_step: bool) -> tf.Tensor:
            if by_step:
                return tf.gather(tensor, tf.range(length))
            return tf.gather(tensor[tf.newaxis], tf.minimum(length, 0))

        return self._map(cut_part, sample)

    def _map(self, function: Callable[[Any, bool], Any], sides: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the sides with each part replaced by `function(part, is_sequence)`."""
        return _map_sides(lambda name, part: function(part, name in self.sequences), sides)


def _map_sides(function: Callable[[str, Any], Any], sides: Sequence[Nest]) -> tuple[Any, ...]:
    """Return the sides with each part replaced by `function(name, part)`. Names are such as `inputs.words`."""

    def map_side(side: str, nest: Nest) -> Nest:
        return map_parts(lambda name, part: function(f"{side}.{name}", part), nest)

    return tuple(map_side(side, nest) for side, nest in zip(SIDES, sides, strict=False))


def save(samples: list[Sample], sequences: Sequence[str], path: Path) -> None:
    """Write the samples atomically, readable by the user only. Nothing is pickled."""
    arrays: dict[str, Any] = {}
    for side, *nests in zip(SIDES, *samples, strict=False):
        named = [parts(nest) for nest in nests]
        arrays |= {f"{side}.{name}": _stack([one[name] for one in named]) for name in named[0]}
    layouts = [map_parts(lambda name, _: name, nest) for nest in samples[0]]
    # NumPy's files don't know bfloat16: they keep its bytes without their type.
    types = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
    arrays[_ABOUT] = np.array(json.dumps({"sequences": list(sequences), "layouts": layouts, "types": types}))
    draft = path.with_suffix(f".{os.getpid()}.npz")  # a clean-up finds the draft of a killed scan by this suffix
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        np.savez(file, **arrays)
    draft.replace(path)


def load(path: Path) -> WorstSamples:
    with np.load(path, allow_pickle=False) as archive:
        about = json.loads(str(archive[_ABOUT]))
        sides = _map_sides(lambda name, _: _load_part(archive, name, about["types"]), about["layouts"])
    return WorstSamples(sides=sides, sequences=frozenset(about["sequences"]))


def _load_part(archive: Any, part: str, types: dict[str, str]) -> Any:
    array = archive[part]
    return array.view(tf.as_dtype(types[part]).as_numpy_dtype) if part in types else array


def _stack(arrays: list[Any]) -> Any:
    longest = max((len(array) for array in arrays if array.ndim), default=0)
    return np.stack([_fit_length(array[np.newaxis], longest)[0] if array.ndim else array for array in arrays])


def _fit_length(array: Any, length: int | None) -> Any:
    """Cut or pad axis 1 to the length."""
    if length is None or array.ndim < 2:
        return array
    cut = array[:, :length]
    return np.pad(cut, [(0, 0), (0, length - cut.shape[1])] + [(0, 0)] * (cut.ndim - 2))
