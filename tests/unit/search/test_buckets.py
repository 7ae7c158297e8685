"""Buckets: their boundaries, and the search for their batch sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomtune.domain import Aim, Budget, Candidate, Kind, Purpose, SearchSpace, TrialRecord
from oomtune.search import best_fit, buckets_found, next_trial_of_all
from oomtune.search.buckets import boundaries, share_padding
from oomtune.trials.fake import FakeDevice
from tests.support.outcomes import failed

counts = st.dictionaries(st.integers(1, 600), st.integers(1, 500), min_size=1, max_size=40).map(
    lambda lengths: tuple(sorted(lengths.items()))
)
SKEWED = ((10, 500), (20, 800), (40, 400), (90, 100), (200, 30), (256, 5))


def tokens(samples: tuple[tuple[int, int], ...], edges: tuple[int, ...]) -> int:
    return sum(min((edge for edge in edges if size <= edge), default=edges[-1]) * many for size, many in samples)


@settings(max_examples=300, deadline=None)
@given(samples=counts, length=st.integers(2, 700), most=st.integers(0, 6))
def test_boundaries_ascend_to_the_length_and_save_a_tenth_of_the_tokens_or_there_are_none(
    samples: tuple[tuple[int, int], ...], length: int, most: int
) -> None:
    edges = boundaries(samples, length, most)
    if not edges:
        return
    assert 2 <= len(edges) <= most
    assert list(edges) == sorted(set(edges))
    assert edges[-1] == length
    assert tokens(samples, edges) <= 0.9 * tokens(samples, (length,))
    assert 0 <= share_padding(samples, edges) < 1


@settings(max_examples=60, deadline=None)
@given(
    samples=st.dictionaries(st.integers(1, 8), st.integers(1, 50), min_size=2, max_size=6).map(
        lambda lengths: tuple((8 * size, many) for size, many in sorted(lengths.items()))
    )
)
def test_no_other_boundaries_leave_less_padding(samples: tuple[tuple[int, int], ...]) -> None:
    edges = boundaries(samples, 64, 3)
    others = [(*chosen, 64) for many in (0, 1, 2) for chosen in combinations(range(8, 64, 8), many)]
    least = min(tokens(samples, other) for other in others)
    worth = least <= 0.9 * tokens(samples, (64,))
    assert bool(edges) == worth
    if edges:
        assert tokens(samples, edges) == least


def law(candidate: Candidate) -> int:
    return 100_000 + 100 * candidate.batch_size * (candidate.sequence_length or 1)


def play(device: FakeDevice, space: SearchSpace) -> list[TrialRecord]:
    history: list[TrialRecord] = []
    while (trial := next_trial_of_all(space, device.budget, history)) is not None:
        history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=device.run(trial)))
        assert len(history) < 100
    return history


SPACE = SearchSpace(
    batch_sizes=range(1, 2049), sequence_lengths=(256,), length_counts=SKEWED, most_buckets=4, resolution=0.02
)


def test_each_bucket_runs_to_its_own_edge_before_all_take_turns() -> None:
    device = FakeDevice(limit_bytes=10_100_000, law=law)
    history = play(device, SPACE)
    buckets = buckets_found(SPACE, device.budget, history)
    assert buckets is not None
    assert buckets.boundaries[-1] == 256
    for length, size in zip(buckets.boundaries, buckets.batch_sizes, strict=True):
        edge = min(2048, 100_000 // length)
        assert 0.88 * edge <= size <= edge
        alone = [record for record in history if record.trial.candidate.sequence_length == length]
        assert any(
            record.trial.candidate.batch_size >= max(size, 0.97 * edge)
            and record.trial.purpose is Purpose.CONFIRM
            and record.outcome.kind is Kind.FITS
            for record in alone
        )
    assert buckets.share_padding < share_padding(SKEWED, (256,))
    best = best_fit(SPACE, history)
    assert best is not None
    assert best.candidate.sequence_length == 256, "a bucket's runs must not answer for the whole length"


def test_one_turn_at_full_size_is_enough_where_memory_is_ample() -> None:
    device = FakeDevice(limit_bytes=1_000_000_000, law=law)
    history = play(device, SPACE)
    buckets = buckets_found(SPACE, device.budget, history)
    assert buckets is not None
    assert set(buckets.batch_sizes) == {2048}
    assert sum(bool(record.buckets) for record in history) == 2


def test_no_bucket_has_a_smaller_batch_than_a_bucket_of_longer_samples() -> None:
    space = replace(SPACE, batch_sizes=range(1, 65), resolution=0.3)
    device = FakeDevice(limit_bytes=1_000_000_000, law=law)
    buckets = buckets_found(space, device.budget, play(device, space))
    assert buckets is not None
    assert list(buckets.batch_sizes) == sorted(buckets.batch_sizes, reverse=True)
    assert buckets.batch_sizes[-1] == 64


def test_buckets_that_need_more_in_turns_shrink_together_until_they_fit() -> None:
    device = FakeDevice(limit_bytes=10_100_000, law=law, turns_factor=1.1)
    buckets = buckets_found(SPACE, device.budget, play(device, SPACE))
    assert buckets is not None
    ran = [
        Candidate(batch_size=size, sequence_length=length)
        for length, size in zip(buckets.boundaries, buckets.batch_sizes, strict=True)
    ]
    assert all(
        candidate.batch_size >= 0.75 * min(2048, 100_000 // (candidate.sequence_length or 1)) for candidate in ran
    )
    largest = max(law(candidate) for candidate in ran)
    assert 1.1 * largest <= device.budget.budget_bytes


@pytest.mark.parametrize(("turns_factor", "most"), [(None, 4), (50.0, 4), (1.0, 0)])
def test_the_answer_stands_where_buckets_can_not_take_turns(turns_factor: float | None, most: int) -> None:
    device = FakeDevice(limit_bytes=10_100_000, law=law, turns_factor=turns_factor)
    space = replace(SPACE, most_buckets=most)
    history = play(device, space)
    assert buckets_found(space, device.budget, history) is None
    best = best_fit(space, history)
    assert best is not None
    assert best.confirmed_by is not None
    tried = [record for record in history if record.buckets]
    assert len(tried) == {None: 1, 50.0: 12, 1.0: 0}[turns_factor]


def test_trials_for_buckets_do_not_change_the_confirmed_answer() -> None:
    """By rounding, a short length holds slightly more tokens here when it runs to its edge."""
    space = replace(SPACE, sequence_lengths=(24, 40, 64, 128, 256), batch_sizes=range(1, 5001))
    device = FakeDevice(limit_bytes=10_100_000, law=lambda candidate: 900_000 + law(candidate))
    history = play(device, space)
    answered = next(at for at, record in enumerate(history) if record.trial.aim is Aim.BUCKETS)
    assert best_fit(space, history) == best_fit(space, history[:answered])
    assert buckets_found(space, device.budget, history) is not None


def test_a_crash_in_the_lane_of_a_bucket_ends_the_buckets_and_keeps_the_answer() -> None:
    device = FakeDevice(limit_bytes=10_100_000, law=law)
    history: list[TrialRecord] = []
    while (trial := next_trial_of_all(SPACE, device.budget, history)) is not None:
        outcome = device.run(trial)
        if (trial.candidate.sequence_length or 0) < 64:
            outcome = failed(Kind.CRASH)
        history.append(TrialRecord(number=len(history) + 1, trial=trial, outcome=outcome))
    assert history[-1].outcome.kind is Kind.CRASH
    best = best_fit(SPACE, history)
    assert best is not None
    assert best.confirmed_by is not None
    assert buckets_found(SPACE, device.budget, history) is None


def test_buckets_resume_where_they_stopped() -> None:
    device = FakeDevice(limit_bytes=10_100_000, law=law)
    history = play(device, SPACE)
    budget = Budget(limit_bytes=10_100_000, headroom=0.0)
    for known in range(len(history)):
        before = history[:known]
        trial = next_trial_of_all(SPACE, budget, before)
        assert trial == history[known].trial
