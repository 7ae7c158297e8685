"""The numbers that samples hold: how far the whole ones go, and where there are fractions."""

from __future__ import annotations

from typing import Any

import numpy as np

from oomtune.worker.data import nesting


class Numbers:
    """The numbers of one side of the samples, looked at as they come.

    Targets that are stored as floats may be labels all the same: where all of them are whole their range is known too,
    and else one of the fractions. Of inputs, floats are no tokens.
    """

    def __init__(self, side: str) -> None:
        self._side = side
        self._whole: dict[str, tuple[int, int]] = {}
        self._fractions: dict[str, float] = {}
        self._kinds: dict[str, set[str]] = {}
        self._places: dict[str, tuple[str, str]] = {}

    def look(self, arrays: Any, where: str = "") -> None:
        """Look at a sample, or at all of them; `where` is its place."""
        for name, array in nesting.parts(arrays).items():
            kind = array.dtype.kind
            self._kinds.setdefault(name, set()).add(kind)
            if not array.size or name in self._fractions:
                continue
            if kind in "iu" or (kind == "f" and self._side == "targets"):
                self._extend(name, array, where)

    def _extend(self, name: str, array: Any, where: str) -> None:
        if array.dtype.kind == "f" and (found := array[array != np.floor(array)]).size:
            self._fractions[name] = float(found.flat[0])
            self._places[name] = where, where
            return
        low, high = int(array.min()), int(array.max())
        lowest, highest = self._whole.setdefault(name, (low, high))
        at_lowest, at_highest = self._places.setdefault(name, (where, where))
        self._whole[name] = min(low, lowest), max(high, highest)
        self._places[name] = where if low < lowest else at_lowest, where if high > highest else at_highest

    def ranges(self) -> dict[str, tuple[int, int]]:
        """The smallest and the largest number of each part that holds whole ones only."""
        return {
            f"{self._side}.{name}": found
            for name, found in self._whole.items()
            if name not in self._fractions and (self._side == "targets" or "f" not in self._kinds[name])
        }

    def fractions(self) -> dict[str, float]:
        """Of each part of the targets that is not whole throughout, the first number that is not."""
        return {f"{self._side}.{name}": found for name, found in self._fractions.items()}

    def places(self) -> dict[str, tuple[str, str]]:
        """Where the smallest and the largest of them stand, or the first fraction; where that is known."""
        return {f"{self._side}.{name}": found for name, found in self._places.items() if all(found)}

    def alike(self, arrays: Any) -> Any:
        """The arrays of a sample with the types that they have in all: whole numbers among fractions are fractions."""
        if not any(self._is_mixed(name) for name in self._kinds):
            return arrays
        return nesting.mapped(self._one, arrays)

    def _is_mixed(self, name: str) -> bool:
        kinds = self._kinds[name]
        return "f" in kinds and bool(kinds & {"i", "u"})

    def _one(self, name: str, array: Any) -> Any:
        return array.astype(np.float32) if self._is_mixed(name) and array.dtype.kind in "iu" else array
