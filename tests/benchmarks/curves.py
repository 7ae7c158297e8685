"""Recorded memory curves: reading, writing, and the peak of a batch size that was not recorded."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from oomtune.domain import Lane

HEADROOM = 0.05
FOLDER = Path(__file__).with_name("recordings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """Where a lane ran out of memory under a limit: a batch that needs `fitted_bytes` with room to spare still ran, and
    one that needs `failed_bytes` did not.

    The batch that ran reported `reported_bytes` there, because a tight allocator splits its chunks differently.
    """

    limit_bytes: int
    fitted_bytes: int
    failed_bytes: int
    reported_bytes: int

    @property
    def share(self) -> float:
        return (self.fitted_bytes + self.failed_bytes) / 2 / self.limit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """One climb under a limit, from the smallest batch: the peak of each size. The last is over the budget, or over the
    limit where memory ran out."""

    limit_bytes: int
    peaks: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """A trial near the edge that went on to larger sizes: the peak of each in that process, and `alone` in a fresh
    process under the same limit. Peaks are over the limit where memory ran out."""

    limit_bytes: int
    peaks: dict[int, int]
    alone: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One lane of one model. `peaks` has, for each size recorded, the peak of every run."""

    model: str
    lane: Lane
    recorded_with: str
    """The versions and the processor; others may draw another curve."""
    peaks: dict[int, tuple[int, ...]]
    walls: tuple[Wall, ...]
    climbs: tuple[Climb, ...] = ()
    approaches: tuple[Approach, ...] = ()

    def typical(self, batch: int) -> int:
        """Return the median peak, interpolated between the sizes recorded on either side."""
        sizes = list(self.peaks)
        above = min(bisect_left(sizes, batch), len(sizes) - 1)
        if sizes[above] == batch or above == 0:
            return int(median(self.peaks[sizes[above]]))
        low, high = sizes[above - 1], sizes[above]
        low_peak, high_peak = median(self.peaks[low]), median(self.peaks[high])
        return int(low_peak + (high_peak - low_peak) * (batch - low) / (high - low))

    def noise(self, batch: int) -> Sequence[float]:
        """Return how the runs of the size recorded closest to this one differed from their median, as factors."""
        sizes = list(self.peaks)
        above = min(bisect_left(sizes, batch), len(sizes) - 1)
        nearest = min(sizes[max(0, above - 1) : above + 1], key=lambda size: abs(size - batch))
        middle = median(self.peaks[nearest])
        return [peak / middle for peak in self.peaks[nearest]]

    def edge(self, peak_bytes: float) -> int:
        """Return the largest recorded batch whose typical peak stays within this; 0 when none does."""
        low, high = 0, max(self.peaks)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.typical(middle) <= peak_bytes else (low, middle - 1)
        return low

    def wall_shares(self) -> list[float]:
        return [round(wall.share, 3) for wall in self.walls]


def write_curves(name: str, curves: Sequence[Curve]) -> None:
    FOLDER.mkdir(exist_ok=True)
    lanes = [json.dumps(_to_json(curve)) for curve in curves]
    (FOLDER / f"{name}.json").write_text("[\n" + ",\n".join(lanes) + "\n]\n")


def read_curves(name: str) -> list[Curve]:
    path = FOLDER / f"{name}.json"
    return [_from_json(name, entry) for entry in json.loads(path.read_text())] if path.exists() else []


def all_curves() -> Iterator[Curve]:
    for path in sorted(FOLDER.glob("*.json")):
        yield from read_curves(path.stem)


def _to_json(curve: Curve) -> dict[str, Any]:
    return {
        "sequence_length": curve.lane.sequence_length,
        "precision": curve.lane.precision,
        "recorded_with": curve.recorded_with,
        "peaks": {size: list(runs) for size, runs in curve.peaks.items()},
        "walls": [
            [wall.limit_bytes, wall.fitted_bytes, wall.failed_bytes, wall.reported_bytes] for wall in curve.walls
        ],
        "climbs": [[climb.limit_bytes, climb.peaks] for climb in curve.climbs],
        "approaches": [[approach.limit_bytes, approach.peaks, approach.alone] for approach in curve.approaches],
    }


def _from_json(name: str, entry: dict[str, Any]) -> Curve:
    return Curve(
        model=name,
        lane=Lane(sequence_length=entry["sequence_length"], precision=entry["precision"]),
        recorded_with=entry["recorded_with"],
        peaks={int(size): tuple(runs) for size, runs in entry["peaks"].items()},
        walls=tuple(
            Wall(limit_bytes=limit, fitted_bytes=fitted, failed_bytes=failed, reported_bytes=reported)
            for limit, fitted, failed, reported in entry["walls"]
        ),
        climbs=tuple(Climb(limit_bytes=limit, peaks=_by_size(peaks)) for limit, peaks in entry["climbs"]),
        approaches=tuple(
            Approach(limit_bytes=limit, peaks=_by_size(peaks), alone=_by_size(alone))
            for limit, peaks, alone in entry["approaches"]
        ),
    )


def _by_size(peaks: dict[str, int]) -> dict[int, int]:
    return {int(size): peak for size, peak in peaks.items()}
