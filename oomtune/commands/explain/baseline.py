"""The candidate as it is, which remedies are held against: its peak, its time, and how much two runs of it differ."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from oomtune.commands.explain.bench import Bench
from oomtune.commands.explain.choosing import Asked, failed
from oomtune.commands.explain.edge import with_proven_edge
from oomtune.commands.explain.measuring import NOISE, Measurement, measure
from oomtune.domain import Budget, Candidate, Cost, Outcome, ProbeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    measured: Measurement
    cost: Cost
    noise_bytes: int


def baseline(
    spec: ProbeSpec, budget: Budget, candidate: Candidate, looked: Outcome, asked: Asked, bench: Bench
) -> Baseline:
    """Run twice what `looked` was told the parts of. Raises an `OomtuneError` where neither fits."""
    runs = [
        measure("the candidate as it is", spec, candidate, budget, bench),
        measure("the same once more", spec, candidate, budget, bench, further=False),
    ]
    # At its very edge a batch fits in one process and not in the next.
    fitting = [run for run in runs if run.points]
    if not fitting:
        raise failed(runs[0].outcome, spec, budget, candidate, asked)
    own = [run.points[0] for run in fitting]
    # What is said of the peak is said of the trial whose parts are shown; the others show how much two of them differ.
    # Of their times the quickest counts: what else the machine does only adds to it.
    peak_bytes, step_ms = looked.peak_bytes or own[0].peak_bytes, min(point.step_ms for point in own)
    peaks = [peak_bytes, *(point.peak_bytes for point in own)]
    cost = dataclasses.replace(fitting[0].cost(budget), peak_bytes=peak_bytes, step_ms=step_ms)
    return Baseline(
        measured=fitting[0],
        cost=with_proven_edge(
            cost, "as it is", spec, fitting[0], budget, bench, compiles=bool(fitting[0].outcome.jit_compile)
        ),
        noise_bytes=max(int(NOISE * peak_bytes), max(peaks) - min(peaks)),
    )
