"""Record memory against batch size for the models of the zoo: `python -m tests.benchmarks.record [NAME...]`.

Each size of each lane runs several times in fresh processes with room to spare, which records the noise between runs.
Then, under a few limits, the recording finds how full the allocator can get before it gives up. Under the same limits it
adds climbs, whose processes have run smaller sizes and may need more, and trials that go on to larger sizes from one
near the edge. `recordings/NAME.json` is written after each lane; lanes that it already holds are not run again.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from oomtune.devices.host import cpu_name
from oomtune.domain import Budget, Device, Failed, Kind, Lane, Outcome, ProbeSpec, Search, SearchSpace, Stage
from oomtune.search import next_trial
from oomtune.search.lanes import lane_views
from oomtune.search.next_size import further_batches
from oomtune.spec import load_spec
from oomtune.trials.local import ForkRunner
from tests.benchmarks.curves import HEADROOM, Approach, Climb, Curve, Wall, read_curves, write_curves
from tests.benchmarks.zoo import ZOO, ZooModel

ROOM_BYTES = 4 * 1024**3
_CPU = Device(kind="cpu", name="the CPU")
# A lane's recording ends with a step this slow.
_SLOW_STEP_MS = 500
_CLIMBS = 2
# Where trials that go on to larger sizes begin, as shares of the lane's wall.
_BEGINNINGS = (0.9, 0.96)

Run = Callable[[Lane, int, int], Outcome]


def record(name: str, model: ZooModel) -> None:
    spec = load_spec(model.spec()).spec
    runner = ForkRunner(spec=spec, device=_CPU, budget=Budget(limit_bytes=ROOM_BYTES, headroom=0), notice=print)

    def run(lane: Lane, batch: int, limit_bytes: int) -> Outcome:
        runner.budget = Budget(limit_bytes=limit_bytes, headroom=0)
        return runner.run(Search(candidate=lane.at(batch)))

    def climb(lane: Lane, limit_bytes: int) -> Outcome:
        runner.budget = Budget(limit_bytes=limit_bytes, headroom=HEADROOM)
        trial = next_trial(_only(lane, spec.space), runner.budget, [])
        assert trial is not None
        return runner.run(trial)

    def approach(lane: Lane, batch: int, limit_bytes: int) -> Outcome:
        runner.budget = Budget(limit_bytes=limit_bytes, headroom=HEADROOM)
        (view,) = lane_views(_only(lane, spec.space), [], runner.budget).values()
        further = further_batches(view, batch, spec.space.resolution)
        return runner.run(Search(candidate=lane.at(batch), further=further))

    curves = {curve.lane: curve for curve in read_curves(name)}
    try:
        for lane in _lanes(spec):
            curve = curves.get(lane) or _curve(name, lane, model, run)
            if not curve.climbs:
                curve = dataclasses.replace(curve, climbs=_climbs(curve, climb))
            if not curve.approaches:
                curve = dataclasses.replace(curve, approaches=_approaches(curve, approach, run))
            if curve != curves.get(lane):
                curves[lane] = curve
                write_curves(name, list(curves.values()))
    finally:
        runner.close()


def _only(lane: Lane, space: SearchSpace) -> SearchSpace:
    lengths = None if lane.sequence_length is None else (lane.sequence_length,)
    return dataclasses.replace(space, sequence_lengths=lengths, precisions=(lane.precision,))


def _climbs(curve: Curve, climb: Callable[[Lane, int], Outcome]) -> tuple[Climb, ...]:
    climbs = []
    for limit_bytes in [wall.limit_bytes for wall in curve.walls for _ in range(_CLIMBS)]:
        outcome = climb(curve.lane, limit_bytes)
        peaks = {point.batch_size: point.peak_bytes for point in outcome.points}
        if isinstance(outcome, Failed):
            ran = outcome.stage is Stage.DONE
            peaks[outcome.batch_size] = outcome.peak_bytes or 0 if ran else limit_bytes + 1
        climbs.append(Climb(limit_bytes=limit_bytes, peaks=peaks))
        print(f"{curve.model:14} {curve.lane!s:32} climbed to {max(peaks, default=0)}", flush=True)
    return tuple(climbs)


def _approaches(curve: Curve, approach: Run, run: Run) -> tuple[Approach, ...]:
    approaches = []
    for wall, share in itertools.product(curve.walls, _BEGINNINGS):
        edge = curve.edge(min(wall.fitted_bytes, (1 - HEADROOM) * wall.limit_bytes))
        begins = max(1, round(share * edge) // 2 * 2)  # in half precision the search leaves out odd sizes
        outcome = approach(curve.lane, begins, wall.limit_bytes)
        peaks = {point.batch_size: point.peak_bytes for point in outcome.further}
        if (last := outcome.further_failed) is not None:
            peaks[last.batch_size] = last.peak_bytes or wall.limit_bytes + 1
        alone = {size: _peak(run(curve.lane, size, wall.limit_bytes), wall.limit_bytes) for size in peaks}
        approaches.append(Approach(limit_bytes=wall.limit_bytes, peaks=peaks, alone=alone))
        print(f"{curve.model:14} {curve.lane!s:32} from {begins} on to {max(peaks, default=begins)}", flush=True)
    return tuple(approaches)


def _peak(outcome: Outcome, limit_bytes: int) -> int:
    return outcome.peak_bytes or 0 if outcome.kind is Kind.FITS else limit_bytes + 1


def _lanes(spec: ProbeSpec) -> list[Lane]:
    return sorted(spec.space.lanes(), key=lambda lane: (lane.precision, lane.sequence_length or 0))


def _curve(name: str, lane: Lane, model: ZooModel, run: Run) -> Curve:
    peaks: dict[int, tuple[int, ...]] = {}
    for size in model.sizes:
        outcomes = [run(lane, size, ROOM_BYTES) for _ in range(model.runs)]
        assert all(outcome.kind is Kind.FITS for outcome in outcomes), outcomes
        peaks[size] = tuple(outcome.peak_bytes or 0 for outcome in outcomes)
        if max(peaks[size]) > model.enough_bytes or max(outcome.step_ms or 0 for outcome in outcomes) > _SLOW_STEP_MS:
            break
    curve = Curve(model=name, lane=lane, recorded_with=_here(), peaks=peaks, walls=())
    curve = dataclasses.replace(curve, walls=tuple(_wall(curve, limit, run) for limit in _limits(curve, model.walls)))
    print(f"{name:14} {lane!s:32} {len(peaks)} sizes, up to {max(peaks)}; walls {curve.wall_shares()}", flush=True)
    return curve


def _here() -> str:
    return f"TensorFlow {version('tensorflow')}, Keras {version('keras')}, {cpu_name()}"


def _limits(curve: Curve, count: int) -> list[int]:
    """Return limits in even ratios, from twice what the smallest batch takes to just under what the largest takes."""
    low, high = 2 * curve.typical(min(curve.peaks)), curve.typical(max(curve.peaks)) * 0.85
    shares = [(index + 0.5) / count for index in range(count)]
    return [max(2, round(low ** (1 - share) * high**share / 1024**2)) * 1024**2 for share in shares]


def _wall(curve: Curve, limit_bytes: int, run: Run) -> Wall:
    """Find where a lane runs out of memory under a limit, to one percent of the batch."""
    fits, fails = 0, None
    batch = curve.edge(limit_bytes * 0.95)
    reported = 0
    while fails is None or fails - fits > max(1, 0.01 * fails):
        outcome = run(curve.lane, batch, limit_bytes)
        if outcome.kind is Kind.FITS:
            fits, reported = batch, outcome.peak_bytes or 0
        else:
            fails = batch
        batch = _next_look(fits, fails, batch)
        if batch > max(curve.peaks):
            fails = batch
    return Wall(
        limit_bytes=limit_bytes,
        fitted_bytes=curve.typical(fits),
        failed_bytes=curve.typical(fails),
        reported_bytes=reported,
    )


def _next_look(fits: int, fails: int | None, batch: int) -> int:
    if fails is None:
        return batch + max(1, batch // 16)
    if fits == 0:
        return batch - max(1, batch // 16)
    return (fits + fails) // 2


def main(names: list[str]) -> None:
    for name in names or ZOO:
        record(name, ZOO[name])


if __name__ == "__main__":
    assert Path("pyproject.toml").exists(), "run this from the project's root: builders are found from there"
    main(sys.argv[1:])
