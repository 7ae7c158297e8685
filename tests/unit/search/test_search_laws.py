"""The search against laws of memory: what it must never do, and how close to the edge it must get."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from oomtune.domain import Budget, Candidate, Climb, Kind, Lane, Objective, Outcome, Purpose, SearchSpace, Trial
from oomtune.search import best_fit, frontier, time_ahead_s
from oomtune.trials.fake import FakeDevice
from tests.benchmarks.searching import play, search

MB = 1_000_000


# Laws along one lane, in bytes for a batch size. Monotone ones first.
lines = st.builds(
    lambda fixed, slope: lambda batch: fixed + slope * batch,
    st.integers(0, 900 * MB),
    st.integers(1, 20 * MB),
)
flat_then_rising = st.builds(
    lambda flat, fixed, slope: lambda batch: max(flat, fixed + slope * batch),
    st.integers(0, 990 * MB),
    st.integers(0, 500 * MB),
    st.integers(1, 20 * MB),
)
stepped = st.builds(
    lambda fixed, slope, width: lambda batch: fixed + slope * (-(-batch // width) * width),
    st.integers(0, 500 * MB),
    st.integers(1, 20 * MB),
    st.integers(2, 64),
)
walls = st.builds(lambda edge: lambda batch: 10 * MB if batch <= edge else 5000 * MB, st.integers(0, 3000))
curved = st.builds(
    lambda fixed, scale, power: lambda batch: fixed + int(scale * batch**power),
    st.integers(0, 500 * MB),
    st.floats(1, MB),
    st.floats(0.2, 2.5),
)
monotone = st.one_of(lines, flat_then_rising, stepped, walls, curved)
axes = st.one_of(
    st.builds(lambda low, span: range(low, low + span), st.integers(1, 50), st.integers(1, 3000)),
    st.builds(lambda step, count: range(step, step * count + 1, step), st.integers(1, 64), st.integers(1, 200)),
    st.lists(st.integers(1, 5000), min_size=1, max_size=12, unique=True).map(lambda sizes: tuple(sorted(sizes))),
)
resolutions = st.sampled_from([0.0, 0.01, 0.02, 0.1])


@settings(max_examples=120, deadline=None)
@given(law=monotone, axis=axes, resolution=resolutions)
def test_the_answer_is_within_the_resolution_of_the_edge_of_a_monotone_law(
    law: Callable[[int], int], axis: range | tuple[int, ...], resolution: float
) -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda candidate: law(candidate.batch_size))
    space = SearchSpace(batch_sizes=axis, resolution=resolution)
    history = play(space, device)
    fitting = [batch for batch in axis if law(batch) <= 1000 * MB]
    best = best_fit(space, history)
    if not fitting:
        assert best is None
        return
    assert best is not None
    assert max(fitting) * (1 - resolution) <= best.candidate.batch_size <= max(fitting)
    assert best.confirmed_by is not None


@settings(max_examples=300, deadline=None)
@given(law=monotone, axis=axes, resolution=resolutions)
def test_the_search_is_never_slower_than_three_binary_searches(
    law: Callable[[int], int], axis: range | tuple[int, ...], resolution: float
) -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda candidate: law(candidate.batch_size))
    history = play(SearchSpace(batch_sizes=axis, resolution=resolution), device)
    assert len(history) <= 3 * math.ceil(math.log2(len(axis) + 1)) + 6


any_law = st.dictionaries(st.integers(1, 300), st.integers(0, 2000 * MB), min_size=1)


@settings(max_examples=300, deadline=None)
@example(table={1: 0, 2: 0}, resolution=0.0, headroom=0.0)  # sizes that need no memory at all
@given(table=any_law, resolution=resolutions, headroom=st.sampled_from([0.0, 0.05]))
def test_no_candidate_runs_twice_and_only_one_that_fitted_is_the_answer(
    table: dict[int, int], resolution: float, headroom: float
) -> None:
    """The law has no order: any size may fit or fail."""
    device = FakeDevice(
        limit_bytes=1000 * MB, law=lambda candidate: table.get(candidate.batch_size, 1500 * MB), headroom=headroom
    )
    space = SearchSpace(batch_sizes=range(1, 301), resolution=resolution)
    history = play(space, device)
    ran = [(trial.candidate, trial.purpose is Purpose.CONFIRM) for trial in device.ran]
    assert len(ran) == len(set(ran))
    best = best_fit(space, history)
    if best is not None:
        assert table[best.candidate.batch_size] <= device.budget.budget_bytes
        assert best.confirmed_by is not None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    noise=st.floats(0, 0.3),
    in_a_climb=st.floats(0.8, 1.5),
    resolution=resolutions,
    lengths=st.sampled_from([None, (64,), (32, 64, 128)]),
)
def test_the_search_ends_however_noisy_memory_is(
    seed: int, noise: float, in_a_climb: float, resolution: float, lengths: tuple[int, ...] | None
) -> None:
    chance = random.Random(seed)

    def run(trial: Trial) -> Outcome:
        def law(candidate: Candidate) -> int:
            typical = 50 * MB + MB * candidate.batch_size * (candidate.sequence_length or 64) / 64
            return int(typical * (in_a_climb if isinstance(trial, Climb) else 1) * chance.lognormvariate(0, noise))

        return FakeDevice(limit_bytes=1000 * MB, law=law, headroom=0.05).run(trial)

    budget = Budget(limit_bytes=1000 * MB, headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097), sequence_lengths=lengths, resolution=resolution)
    history = search(space, budget, run)
    for ran in range(1, len(history) + 1, 3):
        assert time_ahead_s(space, budget, history[:ran]) is not None
    best = best_fit(space, history)
    assert best is None or best.confirmed_by is not None


@settings(max_examples=150, deadline=None)
@given(seed=st.randoms(use_true_random=False), noise=st.floats(0, 0.05), slope=st.integers(MB // 10, 50 * MB))
def test_noise_never_makes_a_size_the_answer_that_failed_in_any_run(seed, noise: float, slope: int) -> None:  # type: ignore[no-untyped-def]
    def law(candidate: Candidate) -> int:
        return int((50 * MB + slope * candidate.batch_size) * (1 + seed.uniform(-noise, noise)))

    device = FakeDevice(limit_bytes=1000 * MB, law=law, headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097))
    history = play(space, device)
    best = best_fit(space, history)
    if best is not None:
        mine = [record for record in history if record.trial.candidate == best.candidate]
        assert all(record.outcome.kind is Kind.FITS for record in mine)
        assert best.confirmed_by in mine


lengths = st.lists(st.sampled_from([16, 32, 64, 96, 128, 256, 512]), min_size=1, max_size=5, unique=True).map(
    lambda chosen: tuple(sorted(chosen))
)


def physical_law(fixed: int, per_sample: int, per_token: int, per_pair: int, half: float) -> Callable[[Candidate], int]:
    """Return the law of a real model: a fixed part, and for each sample parts by sample, token and pair of tokens."""

    def law(candidate: Candidate) -> int:
        length = candidate.sequence_length or 1
        sample = per_sample + per_token * length + per_pair * length * length
        return int(fixed + candidate.batch_size * sample * (1 if candidate.precision == "float32" else half))

    return law


physical = st.builds(
    physical_law,
    st.integers(0, 500 * MB),
    st.integers(0, MB),
    st.integers(1_000, MB // 10),
    st.integers(0, 1_000),
    st.floats(0.4, 1.2),
)


def edges(space: SearchSpace, law: Callable[[Candidate], int], budget: int) -> dict[Lane, int]:
    found = {}
    for lane in space.lanes():
        fitting = [batch for batch in space.batch_sizes if law(lane.at(batch)) <= budget]
        if fitting:
            found[lane] = max(fitting)
    return found


@settings(max_examples=120, deadline=None)
@given(
    law=physical,
    lengths=lengths,
    objective=st.sampled_from([Objective.TOKENS, Objective.BATCH_SIZE, Objective.SEQUENCE_LENGTH]),
)
def test_the_answer_is_within_the_resolution_of_the_best_of_all_lanes(
    law: Callable[[Candidate], int], lengths: tuple[int, ...], objective: Objective
) -> None:
    space = SearchSpace(
        batch_sizes=range(1, 513),
        sequence_lengths=lengths,
        precisions=("float32", "mixed_float16"),
        objective=objective,
    )
    device = FakeDevice(limit_bytes=1000 * MB, law=law)
    best = best_fit(space, play(space, device))
    true = edges(space, law, device.budget.budget_bytes)
    if not true:
        assert best is None
        return
    assert best is not None
    candidate = best.candidate
    slack = 1 - space.resolution
    longest = max(lane.sequence_length or 0 for lane in true)
    match objective:
        case Objective.TOKENS:
            assert candidate.tokens >= slack * max(lane.at(batch).tokens for lane, batch in true.items())
        case Objective.BATCH_SIZE:
            assert candidate.batch_size >= slack * max(true.values())
        case _:
            assert candidate.sequence_length == longest
            theirs = [batch for lane, batch in true.items() if lane.sequence_length == longest]
            assert candidate.batch_size >= slack * max(theirs)


@settings(max_examples=60, deadline=None)
@given(law=physical, lengths=lengths)
def test_every_lane_is_known_to_the_resolution_when_the_whole_frontier_is_asked_for(
    law: Callable[[Candidate], int], lengths: tuple[int, ...]
) -> None:
    space = SearchSpace(
        batch_sizes=range(1, 257), sequence_lengths=lengths, precisions=("float32", "mixed_float16"), every_lane=True
    )
    device = FakeDevice(limit_bytes=1000 * MB, law=law)
    history = play(space, device)
    known = {point.lane: point for point in frontier(space, history, device.budget)}
    true = edges(space, law, device.budget.budget_bytes)
    assert set(known) == set(true)
    for lane, edge in true.items():
        assert known[lane].edge_known
        assert edge * (1 - space.resolution) <= known[lane].batch_size <= edge
