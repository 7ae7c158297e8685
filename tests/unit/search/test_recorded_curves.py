"""The referee of the search: how many trials it takes over recorded memory curves, and how close it gets to the edge.

The search runs over every recording under twenty budgets, with the noise that was recorded between fresh processes and
between those and climbs. Most numbers of `oomtune.search.tuning` were chosen on these curves, and hardly any on those
of `HELD_OUT`, which show how the search does on models that it does not know.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace

import pytest

from oomtune.domain import Kind, Purpose, SearchSpace, TrialRecord
from oomtune.search import best_fit, time_ahead_s
from tests.benchmarks.curves import Curve, all_curves, read_curves
from tests.benchmarks.replay import budgets, edge_band, replay, space_of
from tests.benchmarks.searching import out_of_memory
from tests.benchmarks.zoo import HELD_OUT, ZOO

CURVES = list(all_curves())
MANY_LANES = ("lstm", "transformer")


def answer(space: SearchSpace, records: list[TrialRecord]) -> int:
    best = best_fit(space, records)
    return 0 if best is None else best.candidate.batch_size


def test_the_recordings_cover_many_models_in_three_precisions_with_several_runs_a_size() -> None:
    assert len({curve.model for curve in CURVES}) >= 10
    assert {"float32", "mixed_bfloat16", "mixed_float16"} <= {curve.lane.precision for curve in CURVES}
    assert all(len(runs) >= 2 for curve in CURVES for runs in curve.peaks.values())
    for name in MANY_LANES:
        assert len(read_curves(name)) == 24


@pytest.mark.parametrize("models", [set(ZOO), set(HELD_OUT)], ids=["all", "held out"])
def test_an_unknown_lane_takes_a_handful_of_trials_and_ends_at_the_edge(models: set[str]) -> None:
    trials, failures, near = [], [], []
    for curve in (curve for curve in CURVES if curve.model in models):
        space = space_of([curve])
        for seed, budget in enumerate(budgets([curve])):
            records = replay([curve], space, budget, seed=seed)
            confirmed = best_fit(space, records)
            assert confirmed is None or confirmed.confirmed_by is not None
            surely_fits, _ = edge_band(curve, budget)
            near.append(answer(space, records) >= math.floor(surely_fits * (1 - space.resolution)))
            trials.append(len(records))
            failures.append(out_of_memory(record.outcome for record in records))
    assert statistics.mean(trials) <= 4.5
    assert statistics.quantiles(trials, n=20)[-1] <= 8
    assert statistics.mean(failures) <= 1.3
    assert statistics.mean(near) >= 0.99


def pairs() -> Iterator[tuple[Curve, Curve]]:
    """Yield pairs of a lane that was searched and one that was not: one model at two lengths or in two precisions."""
    for known, asked in itertools.permutations(CURVES, 2):
        one, other = known.lane, asked.lane
        kin = (one.sequence_length == other.sequence_length) != (one.precision == other.precision)
        if known.model == asked.model and kin:
            yield known, asked


def test_a_lane_beside_one_that_was_searched_takes_fewer_trials_to_its_edge() -> None:
    trials, near = [], []
    for number, (known, asked) in enumerate(pairs()):
        together = budgets([known, asked])
        if together[0].limit_bytes > together[-1].limit_bytes:
            continue  # no limit suits both
        budget = together[number % len(together)]
        before = replay([known], space_of([known]), budget, seed=number)
        space = space_of([known, asked], every_lane=True)
        records = replay([known, asked], space, budget, seed=number, history=before)
        trials.append(len(records) - len(before))
        best = best_fit(space, records)
        edges = [edge_band(curve, budget)[0] * (curve.lane.sequence_length or 1) for curve in (known, asked)]
        # One resolution for the lane that is chosen, one for the batch in it.
        near.append(best is not None and best.candidate.tokens >= max(edges) * (1 - space.resolution) ** 2)
    assert len(trials) > 200
    assert statistics.mean(trials) <= 3.0
    assert statistics.mean(near) >= 0.99


def test_a_size_that_runs_after_a_size_close_to_it_needs_what_a_fresh_process_needs() -> None:
    """This is why trials go on to larger sizes, and why the replays above treat those as fresh. Both were recorded at
    the same size under the same limit, and differ no more than two fresh processes do."""
    after_another = [
        peak / approach.alone[size]
        for curve in CURVES
        for approach in curve.approaches
        for size, peak in approach.peaks.items()
    ]
    fresh = [
        one / other
        for curve in CURVES
        for runs in list(curve.peaks.values())[2:]  # the smallest are all workspace, and noise
        for one, other in itertools.permutations(runs, 2)
    ]
    assert len(after_another) > 200
    assert statistics.median(after_another) == pytest.approx(1, abs=0.01)
    assert statistics.stdev(after_another) <= 1.1 * statistics.stdev(fresh)


def test_three_precisions_by_eight_lengths_take_as_many_trials_as_there_are_lanes_at_most() -> None:
    trials, same = [], []
    for curves in (read_curves(name) for name in MANY_LANES):
        space, every = space_of(curves), space_of(curves, every_lane=True)
        for seed, budget in enumerate(budgets(curves)):
            records = replay(curves, space, budget, seed=seed)
            best = best_fit(space, records)
            best_of_all = best_fit(every, replay(curves, every, budget, seed=seed + 100))
            assert best is not None
            assert best_of_all is not None
            trials.append(len(records))
            same.append(best.candidate.tokens >= best_of_all.candidate.tokens * (1 - space.resolution))
            # Two searches also differ by luck, but no answer may be below what the best lane holds in every run.
            truth = max(edge_band(curve, budget)[0] * (curve.lane.sequence_length or 1) for curve in curves)
            assert best.candidate.tokens >= truth * (1 - space.resolution)
    assert statistics.mean(trials) <= 24
    assert statistics.mean(same) >= 0.95


def with_a_time(record: TrialRecord) -> TrialRecord:
    """Give the record the duration of such a trial with a small model, because recordings have no times."""
    whole_s = {Purpose.CALIBRATE: 5.0, Purpose.SEARCH: 3.0, Purpose.CONFIRM: 4.0}[record.trial.purpose]
    duration_s = whole_s if record.outcome.kind is Kind.FITS or record.outcome.points else 1.5
    return replace(record, outcome=replace(record.outcome, duration_s=duration_s))


def test_the_remaining_time_after_the_third_trial_is_predicted_to_a_factor_of_two() -> None:
    predicted = []
    one_lane = [[curve] for curve in CURVES[::4]]
    for curves in (*one_lane, *(read_curves(name) for name in MANY_LANES)):
        space = space_of(curves)
        for seed, budget in enumerate(budgets(curves)):
            records = replay(curves, space, budget, seed=seed)
            timed = [with_a_time(record) for record in records]
            left_s = sum(record.outcome.duration_s for record in timed[3:])
            if left_s:
                ahead_s = time_ahead_s(space, budget, timed[:3])
                predicted.append(ahead_s is not None and left_s / 2 <= ahead_s <= left_s * 2)
    assert len(predicted) > 100
    assert statistics.mean(predicted) >= 0.85


def test_every_answer_ran_and_fitted() -> None:
    for curve in CURVES[::5]:
        space = space_of([curve])
        for seed, budget in enumerate(budgets([curve])):
            records = replay([curve], space, budget, seed=seed)
            best = best_fit(space, records)
            last = [record for record in records if best and record.trial.candidate == best.candidate]
            assert best is None or last[-1].outcome.kind is Kind.FITS
