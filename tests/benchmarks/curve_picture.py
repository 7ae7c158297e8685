"""Draw a real memory curve with the trials of a real probe, for the README: `make pictures` runs this."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

from oomtune.devices import resolve
from oomtune.domain import Budget, Kind, Purpose, Search, Stage, TrialRecord
from oomtune.report.trial_rows import trial_row
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner
from oomtune.units import MIB
from tests.benchmarks.searching import search

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SPEC, _SETTINGS = "configs/lstm.yaml", ["search.precision=[float32]", "search.sequence_length=[64]"]
_BEHIND = (1, 16, 48, 96, 144, 192, 240, 288, 336, 384, 408)
_FITS, _FAILS = "#1a7f37", "#cf222e"


def draw(picture: Path) -> None:
    spec = load_spec(_SPEC, settings=_SETTINGS).spec
    found = resolve(spec.device, ())
    runner = ForkRunner(spec=spec, device=found.device, budget=found.budget, notice=print)
    try:
        records = search(spec.space, found.budget, runner.run)
        behind = [runner.run(Search(candidate=spec.space.lanes()[0].at(size))) for size in _BEHIND]
    finally:
        runner.close()
    mpl.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10})
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    ran = [
        (size, outcome.peak_bytes) for size, outcome in zip(_BEHIND, behind, strict=True) if outcome.kind is Kind.FITS
    ]
    axes.plot(*zip(*((size, _mib(peak)) for size, peak in ran), strict=True), color="#8c959f", lw=1, zorder=1)
    _limits(axes, found.budget)
    words = [_trial(axes, record, found.budget) for record in records]
    axes.text(0.99, 0.04, "\n".join(words), transform=axes.transAxes, ha="right", fontsize=8)
    axes.set(xlabel="batch size", ylabel="peak memory, MiB", ylim=(0, _mib(found.budget.limit_bytes) * 1.15))
    axes.set_title(f"configs/lstm.yaml, sequence 64, float32: {len(records)} trials", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, metadata={"Date": None})


def _limits(axes: Axes, budget: Budget) -> None:
    for value, words in ((budget.limit_bytes, "the limit"), (budget.budget_bytes, "less 5 % headroom: the budget")):
        axes.axhline(_mib(value), color="#57606a", lw=0.8, ls="--")
        axes.annotate(words, (0, _mib(value)), xytext=(2, 2), textcoords="offset points", color="#57606a", fontsize=8)


def _trial(axes: Axes, record: TrialRecord, budget: Budget) -> str:
    """Draw a trial and return its description. Sizes that fitted are dots, failures are crosses, the answer is a star."""
    outcome, number = record.outcome, record.number
    for point in (*outcome.points, *outcome.further):
        axes.scatter(point.batch_size, _mib(point.peak_bytes), color=_FITS, s=28, zorder=3)
    climb = f"climbs {', '.join(str(point.batch_size) for point in outcome.points)}" if outcome.points else ""
    fits = outcome.kind is Kind.FITS
    if fits and climb:
        return f"trial {number} {climb}"
    batch = record.ended_at.batch_size
    # A trial that ran out of memory has no peak, so it is drawn at the limit.
    ran = outcome.stage is Stage.DONE and outcome.peak_bytes is not None
    height = _mib(outcome.peak_bytes if ran else budget.limit_bytes)
    confirmed = fits and record.trial.purpose is Purpose.CONFIRM
    marker = "*" if confirmed else "o" if fits else "x"
    axes.scatter(
        batch, height, color=_FITS if fits else _FAILS, marker=marker, s=120 if confirmed else 40, zorder=4 + confirmed
    )
    beyond = outcome.further_failed
    if beyond is not None:
        axes.scatter(
            beyond.batch_size, _mib(beyond.peak_bytes or budget.limit_bytes), color=_FAILS, marker="x", s=40, zorder=4
        )
    ended = "confirmed" if confirmed else "fits" if fits else "over the headroom" if ran else "out of memory"
    went_on = trial_row(record, budget).then if not outcome.points else ""
    return f"trial {number} {climb + '; ' if climb else ''}{batch} {ended}{', then ' + went_on if went_on else ''}"


def _mib(value: int | None) -> float:
    return (value or 0) / MIB


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
