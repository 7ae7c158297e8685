"""The search against laws of memory: what it must never do, and how close it must come."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomtune.domain import Candidate, Fit, Kind, Lane, Objective, Purpose, SearchSpace, TrialRecord
from oomtune.search import best_fit, frontier, next_larger, next_trial, trials_ahead
from oomtune.trials.fake import FakeDevice
from tests.benchmarks.searching import search

MB = 1_000_000


def play(space: SearchSpace, device: FakeDevice, at_most: int = 2000) -> list[TrialRecord]:
    """Run the search to its end against a device."""
    return search(space, device.budget, device.run, at_most=at_most)


def answer(space: SearchSpace, history: list[TrialRecord]) -> Fit | None:
    return best_fit(space, history)


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


@settings(max_examples=400, deadline=None)
@given(law=monotone, axis=axes, resolution=resolutions)
def test_for_a_monotone_law_the_answer_is_within_resolution_of_the_edge(
    law: Callable[[int], int], axis: range | tuple[int, ...], resolution: float
) -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda candidate: law(candidate.batch_size))
    space = SearchSpace(batch_sizes=axis, resolution=resolution)
    history = play(space, device)
    fitting = [batch for batch in axis if law(batch) <= 1000 * MB]
    best = answer(space, history)
    if not fitting:
        assert best is None
        return
    assert best is not None
    assert max(fitting) * (1 - resolution) <= best.candidate.batch_size <= max(fitting)
    assert best.confirmed_by is not None


@settings(max_examples=300, deadline=None)
@given(law=monotone, axis=axes, resolution=resolutions)
def test_at_worst_it_is_a_binary_search(
    law: Callable[[int], int], axis: range | tuple[int, ...], resolution: float
) -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda candidate: law(candidate.batch_size))
    history = play(SearchSpace(batch_sizes=axis, resolution=resolution), device)
    assert len(history) <= 3 * math.ceil(math.log2(len(axis) + 1)) + 6


any_law = st.dictionaries(st.integers(1, 300), st.integers(0, 2000 * MB), min_size=1)


@settings(max_examples=300, deadline=None)
@given(table=any_law, resolution=resolutions, headroom=st.sampled_from([0.0, 0.05]))
def test_whatever_the_law_nothing_runs_twice_and_only_what_fitted_is_answered(
    table: dict[int, int], resolution: float, headroom: float
) -> None:
    """No order at all in the law: fits and failures anywhere."""
    device = FakeDevice(
        limit_bytes=1000 * MB, law=lambda candidate: table.get(candidate.batch_size, 1500 * MB), headroom=headroom
    )
    space = SearchSpace(batch_sizes=range(1, 301), resolution=resolution)
    history = play(space, device)
    ran = [(trial.candidate, trial.purpose is Purpose.CONFIRM) for trial in device.ran]
    assert len(ran) == len(set(ran))
    best = answer(space, history)
    if best is not None:
        assert table[best.candidate.batch_size] <= device.budget.budget_bytes
        assert best.confirmed_by is not None


@settings(max_examples=150, deadline=None)
@given(seed=st.randoms(use_true_random=False), noise=st.floats(0, 0.05), slope=st.integers(MB // 10, 50 * MB))
def test_noise_never_makes_it_answer_what_did_not_fit_when_it_ran(seed, noise: float, slope: int) -> None:  # type: ignore[no-untyped-def]
    def law(candidate: Candidate) -> int:
        return int((50 * MB + slope * candidate.batch_size) * (1 + seed.uniform(-noise, noise)))

    device = FakeDevice(limit_bytes=1000 * MB, law=law, headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097))
    history = play(space, device)
    best = answer(space, history)
    if best is not None:
        mine = [record for record in history if record.trial.candidate == best.candidate]
        assert all(record.outcome.kind is Kind.FITS for record in mine)
        assert best.confirmed_by in mine


lengths = st.lists(st.sampled_from([16, 32, 64, 96, 128, 256, 512]), min_size=1, max_size=5, unique=True).map(
    lambda found: tuple(sorted(found))
)


def physical_law(fixed: int, per_sample: int, per_token: int, per_pair: int, half: float) -> Callable[[Candidate], int]:
    """What real models do: a fixed part, and per sample a part, one by the token and one by pairs of tokens."""

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
def test_the_joint_answer_is_within_resolution_of_the_best_of_all_lanes(
    law: Callable[[Candidate], int], lengths: tuple[int, ...], objective: Objective
) -> None:
    space = SearchSpace(
        batch_sizes=range(1, 513),
        sequence_lengths=lengths,
        precisions=("float32", "mixed_float16"),
        objective=objective,
    )
    device = FakeDevice(limit_bytes=1000 * MB, law=law)
    best = answer(space, play(space, device))
    true = edges(space, law, device.budget.budget_bytes)
    if not true:
        assert best is None
        return
    assert best is not None
    candidate = best.candidate
    slack = (1 - space.resolution) ** 2  # a lane's own edge, and lanes that would be better by less
    longest = max(lane.sequence_length or 0 for lane in true)
    match objective:
        case Objective.TOKENS:
            assert candidate.tokens >= slack * max(lane.at(batch).tokens for lane, batch in true.items()) - longest
        case Objective.BATCH_SIZE:
            assert candidate.batch_size >= slack * max(true.values()) - 1
        case _:
            assert candidate.sequence_length == longest
            theirs = [batch for lane, batch in true.items() if lane.sequence_length == longest]
            assert candidate.batch_size >= slack * max(theirs) - 1


@settings(max_examples=60, deadline=None)
@given(law=physical, lengths=lengths)
def test_with_the_whole_frontier_asked_for_every_lane_is_known_to_resolution(
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


def test_a_straight_line_takes_the_two_trials_that_prove_an_answer() -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda c: 50 * MB + 2 * MB * c.batch_size, headroom=0.05)
    history = play(SearchSpace(batch_sizes=range(1, 4097)), device)
    assert [record.trial.purpose.value for record in history] == ["calibrate", "confirm"]


def test_the_fake_device_of_the_style_guide() -> None:
    device = FakeDevice(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size)
    space = SearchSpace(batch_sizes=range(1, 1025), resolution=0)
    best = answer(space, play(space, device))
    assert best is not None
    assert best.candidate.batch_size == 180


def test_a_failed_confirm_sends_the_search_on() -> None:
    """The law climbs with every run after the first: what fitted in the search does not when it is confirmed."""
    seen: set[Candidate] = set()

    def law(candidate: Candidate) -> int:
        again = candidate in seen
        seen.add(candidate)
        return 100 + 5 * candidate.batch_size + (80 if again else 0)

    device = FakeDevice(limit_bytes=1_000, law=law)
    space = SearchSpace(batch_sizes=range(1, 1025))
    history = play(space, device)
    best = answer(space, history)
    assert best is not None
    assert best.confirmed_by is not None
    assert best.confirmed_by.outcome.kind is Kind.FITS


def test_on_a_tie_the_longer_sequence_and_then_the_first_precision_win() -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda candidate: MB)
    space = SearchSpace(
        batch_sizes=(8, 16, 32), sequence_lengths=(64, 128), precisions=("float32", "mixed_bfloat16"), resolution=0
    )
    best = answer(space, play(space, device))
    assert best is not None
    assert best.candidate == Candidate(batch_size=32, sequence_length=128, precision="float32")


def test_throughput_prefers_the_fastest_that_fits_and_not_the_largest() -> None:
    device = FakeDevice(
        limit_bytes=1000 * MB,
        law=lambda candidate: MB * candidate.batch_size,
        step_ms=lambda candidate: candidate.batch_size if candidate.batch_size <= 500 else 4.0 * candidate.batch_size,
    )
    space = SearchSpace(batch_sizes=range(1, 2049), sequence_lengths=(8, 16), objective=Objective.THROUGHPUT)
    best = answer(space, play(space, device))
    assert best is not None
    assert best.candidate.batch_size <= 500
    assert best.candidate.sequence_length == 8


def test_when_nothing_fits_few_trials_say_so() -> None:
    device = FakeDevice(limit_bytes=10, law=lambda candidate: 1000)
    space = SearchSpace(
        batch_sizes=range(1, 1025),
        sequence_lengths=tuple(range(64, 513, 64)),
        precisions=("float32", "mixed_bfloat16", "mixed_float16"),
    )
    history = play(space, device)
    assert answer(space, history) is None
    assert len(history) <= 1 + len(space.precisions)
    shortest = min(record.trial.candidate.sequence_length or 0 for record in history)
    assert shortest == 64


def test_the_same_history_always_calls_for_the_same_trial() -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda c: 50 * MB + MB * c.batch_size, headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097))
    history = play(space, device)
    for count in range(len(history)):
        assert next_trial(space, device.budget, history[:count]) == history[count].trial


@pytest.mark.parametrize("needs", [0.8, 0.9, 1.1, 1.3])
def test_where_a_climb_ended_is_no_proof_against_a_fresh_process(needs: float) -> None:
    """A climb's process has run smaller sizes before, and needs more or less for it."""

    def law(candidate: Candidate) -> int:
        return 50 * MB + 2 * MB * candidate.batch_size

    fresh = FakeDevice(limit_bytes=1000 * MB, law=law, headroom=0.05)
    climbing = FakeDevice(limit_bytes=1000 * MB, law=lambda candidate: int(needs * law(candidate)), headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097))
    history = search(space, fresh.budget, lambda trial: (climbing if trial.climb else fresh).run(trial))
    best = best_fit(space, history)
    assert best is not None
    assert best.confirmed_by is not None
    assert 450 * 0.98 <= best.candidate.batch_size <= 450
    assert len(history) <= 8


def test_in_half_precision_odd_batches_are_left_out_where_they_are_many() -> None:
    """They were seen to need more memory than the even ones on either side."""

    def law(candidate: Candidate) -> int:
        return int((50 * MB + MB * candidate.batch_size) * (1.08 if candidate.batch_size % 2 else 1))

    device = FakeDevice(limit_bytes=1000 * MB, law=law, headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097), precisions=("mixed_bfloat16",))
    history = play(space, device)
    best = best_fit(space, history)
    assert best is not None
    assert 900 * 0.98 <= best.candidate.batch_size <= 900
    assert len(history) <= 3


def test_the_next_larger_batch_that_failed_is_named() -> None:
    device = FakeDevice(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size)
    space = SearchSpace(batch_sizes=range(1, 1025), resolution=0)
    history = play(space, device)
    assert next_larger(space, history, Candidate(batch_size=180), device.budget) == (
        Candidate(batch_size=181),
        Kind.DEVICE_OOM,
    )


def test_the_forecast_is_of_the_trials_that_then_really_run() -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda c: 50 * MB + 2 * MB * c.batch_size, headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097))
    history = play(space, device)
    foreseen, ran = trials_ahead(space, device.budget, history[:1]), [record.trial.purpose for record in history[1:]]
    assert foreseen[: len(ran)] == ran
    assert len(foreseen) <= 2 * len(ran)
    assert trials_ahead(space, device.budget, history) == trials_ahead(space, device.budget, []) == []


@pytest.mark.parametrize("kind", [Kind.HOST_OOM, Kind.TIMEOUT])
def test_host_memory_and_timeouts_bound_the_search_too(kind: Kind) -> None:
    """Anything but a crash at a size means that the size can't be had."""
    import dataclasses

    device = FakeDevice(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size)
    space = SearchSpace(batch_sizes=range(1, 1025), resolution=0)
    history: list[TrialRecord] = []
    while (trial := next_trial(space, device.budget, history)) is not None:
        outcome = device.run(trial)
        if outcome.kind is Kind.DEVICE_OOM:
            outcome = dataclasses.replace(outcome, kind=kind)
        history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome))
    best = answer(space, history)
    assert best is not None
    assert best.candidate.batch_size == 180
