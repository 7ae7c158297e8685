"""The search in single cases: one law each, and what the search must do there."""

from __future__ import annotations

import dataclasses

import pytest

from oomtune.domain import (
    Budget,
    Candidate,
    Climb,
    Climbed,
    FailedSize,
    FailureKind,
    Fitted,
    Kind,
    Objective,
    Outcome,
    Point,
    Purpose,
    Search,
    SearchSpace,
    Trial,
    TrialRecord,
)
from oomtune.search import best_fit, frontier, next_larger, next_trial, time_ahead_s
from oomtune.trials.fake import FakeDevice
from tests.benchmarks.searching import play, search

MB = 1_000_000


def test_a_straight_line_takes_two_trials() -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda c: 50 * MB + 2 * MB * c.batch_size, headroom=0.05)
    history = play(SearchSpace(batch_sizes=range(1, 4097)), device)
    assert [record.trial.purpose.value for record in history] == ["calibrate", "confirm"]


def test_a_climb_that_ends_too_early_costs_one_trial_more() -> None:
    def run(trial: Trial) -> Outcome:
        needs = 1.1 if isinstance(trial, Climb) else 1.0
        law = lambda candidate: int(needs * (50 * MB + 2 * MB * candidate.batch_size))  # noqa: E731
        return FakeDevice(limit_bytes=1000 * MB, law=law, headroom=0.05).run(trial)

    space, budget = SearchSpace(batch_sizes=range(1, 4097)), Budget(limit_bytes=1000 * MB, headroom=0.05)
    history = search(space, budget, run)
    assert [record.trial.purpose.value for record in history] == ["calibrate", "confirm", "confirm"]
    best = best_fit(space, history)
    assert best is not None
    assert 441 <= best.candidate.batch_size <= 450
    larger = next_larger(space, history, best.candidate, budget)
    assert larger is not None
    assert 450 < larger[0].batch_size <= best.candidate.batch_size / 0.98 + 1


def test_a_size_that_failed_after_another_runs_again_when_a_fresh_process_leaves_room_for_it() -> None:
    """A size needs a tenth more after another size than it needs alone."""

    def run(trial: Trial) -> Outcome:
        def law(candidate: Candidate) -> int:
            alone = 20 * MB + 2 * MB * candidate.batch_size
            return alone if candidate == trial.candidate else int(1.1 * alone)

        return FakeDevice(limit_bytes=1000 * MB, law=law).run(trial)

    space, budget = SearchSpace(batch_sizes=range(1, 4097)), Budget(limit_bytes=1000 * MB)
    best = best_fit(space, search(space, budget, run))
    assert best is not None
    assert best.candidate.batch_size >= 0.93 * 490


def test_an_exact_search_finds_the_last_batch_that_fits() -> None:
    device = FakeDevice(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size)
    space = SearchSpace(batch_sizes=range(1, 1025), resolution=0)
    best = best_fit(space, play(space, device))
    assert best is not None
    assert best.candidate.batch_size == 180


def test_the_search_goes_on_after_a_failed_confirm_run() -> None:
    """A second run of a candidate needs more, so a candidate that fitted in the search fails when it is confirmed."""
    ran: set[Candidate] = set()

    def law(candidate: Candidate) -> int:
        again = candidate in ran
        ran.add(candidate)
        return 100 + 5 * candidate.batch_size + (80 if again else 0)

    device = FakeDevice(limit_bytes=1_000, law=law)
    space = SearchSpace(batch_sizes=range(1, 1025))
    history = play(space, device)
    best = best_fit(space, history)
    assert best is not None
    assert best.confirmed_by is not None
    assert best.confirmed_by.outcome.kind is Kind.FITS


def test_on_a_tie_the_longer_sequence_wins_and_then_the_first_precision() -> None:
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda candidate: MB)
    space = SearchSpace(
        batch_sizes=(8, 16, 32), sequence_lengths=(64, 128), precisions=("float32", "mixed_bfloat16"), resolution=0
    )
    best = best_fit(space, play(space, device))
    assert best is not None
    assert best.candidate == Candidate(batch_size=32, sequence_length=128, precision="float32")


def test_throughput_prefers_the_fastest_batch_to_the_largest() -> None:
    device = FakeDevice(
        limit_bytes=1000 * MB,
        law=lambda candidate: MB * candidate.batch_size,
        step_ms=lambda candidate: candidate.batch_size if candidate.batch_size <= 500 else 4.0 * candidate.batch_size,
    )
    space = SearchSpace(batch_sizes=range(1, 2049), sequence_lengths=(8, 16), objective=Objective.THROUGHPUT)
    best = best_fit(space, play(space, device))
    assert best is not None
    assert best.candidate.batch_size <= 500
    assert best.candidate.sequence_length == 8


def test_few_trials_show_that_nothing_fits() -> None:
    device = FakeDevice(limit_bytes=10, law=lambda candidate: 1000)
    space = SearchSpace(
        batch_sizes=range(1, 1025),
        sequence_lengths=tuple(range(64, 513, 64)),
        precisions=("float32", "mixed_bfloat16", "mixed_float16"),
    )
    history = play(space, device)
    assert best_fit(space, history) is None
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
def test_a_fresh_process_overrules_the_end_of_a_climb(needs: float) -> None:
    """The process of a climb has run smaller sizes, and so needs more or less than a fresh one."""

    def law(candidate: Candidate) -> int:
        return 50 * MB + 2 * MB * candidate.batch_size

    fresh = FakeDevice(limit_bytes=1000 * MB, law=law, headroom=0.05)
    climbing = FakeDevice(limit_bytes=1000 * MB, law=lambda candidate: int(needs * law(candidate)), headroom=0.05)

    def run(trial: Trial) -> Outcome:
        return (climbing if isinstance(trial, Climb) else fresh).run(trial)

    space = SearchSpace(batch_sizes=range(1, 4097))
    history = search(space, fresh.budget, run)
    best = best_fit(space, history)
    assert best is not None
    assert best.confirmed_by is not None
    assert 450 * 0.98 <= best.candidate.batch_size <= 450
    assert len(history) <= 8

    whole = dataclasses.replace(space, precisions=("float32", "mixed_float16"), resolution=0.05, every_lane=True)
    for point in frontier(whole, search(whole, fresh.budget, run), fresh.budget):
        assert point.edge_known
        assert 450 * 0.95 <= point.batch_size <= 450


@pytest.mark.parametrize(("level_from", "edge"), [(100, 1000), (400, 900), (560, 840)])
def test_a_level_stretch_below_the_budget_is_crossed_in_ever_longer_steps(level_from: int, edge: int) -> None:
    """The allocator doubles its regions: the climb ends early, and fresh processes show no slope."""

    def peak(candidate: Candidate, *, climbing: bool) -> int:
        batch = candidate.batch_size
        if climbing and batch > level_from * 1.1:
            return 960
        return 880 * min(batch, level_from) // level_from if batch <= edge else 1_001

    def run(trial: Trial) -> Outcome:
        climbing = trial.purpose is Purpose.CALIBRATE
        law = lambda candidate: peak(candidate, climbing=climbing)  # noqa: E731
        return FakeDevice(limit_bytes=1_000, headroom=0.05, law=law).run(trial)

    space = SearchSpace(batch_sizes=range(8, 1025, 8))
    records = search(space, Budget(limit_bytes=1_000), run)
    best = best_fit(space, records)
    assert best is not None
    assert edge * 0.98 <= best.candidate.batch_size <= edge
    assert len(records) <= 12


def test_half_precision_leaves_out_odd_batches_where_even_ones_are_close() -> None:
    """In half precision an odd batch of an LSTM needs more memory than the even ones beside it."""

    def law(candidate: Candidate) -> int:
        return int((50 * MB + MB * candidate.batch_size) * (1.08 if candidate.batch_size % 2 else 1))

    device = FakeDevice(limit_bytes=1000 * MB, law=law, headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097), precisions=("mixed_bfloat16",))
    history = play(space, device)
    best = best_fit(space, history)
    assert best is not None
    assert 900 * 0.98 <= best.candidate.batch_size <= 900
    assert len(history) <= 3


def test_the_next_larger_batch_that_failed_is_reported() -> None:
    device = FakeDevice(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size)
    space = SearchSpace(batch_sizes=range(1, 1025), resolution=0)
    history = play(space, device)
    assert next_larger(space, history, Candidate(batch_size=180), device.budget) == (
        Candidate(batch_size=181),
        Kind.DEVICE_OOM,
    )


def test_a_doubted_failure_without_a_peak_does_not_bound_the_next_trial() -> None:
    """The size fitted in the climb and failed after another size. A later trial shows room for more."""
    space, budget, lane = (
        SearchSpace(batch_sizes=range(1, 4097)),
        Budget(limit_bytes=1000 * MB),
        Candidate(batch_size=1).lane,
    )
    climbed = tuple(Point(batch_size=size, peak_bytes=size // 2 * MB, step_ms=1.0) for size in (512, 1024, 1695))
    climb = Climb(lane=lane, sizes=(512, 1024, 1695))
    fitted = Fitted(peak_bytes=800 * MB, step_ms=1.0)
    ended = FailedSize(batch_size=1695, kind=Kind.DEVICE_OOM)
    outcomes: dict[Trial, Outcome] = {
        climb: Climbed(peak_bytes=800 * MB, points=climbed),
        Search(candidate=lane.at(1600)): dataclasses.replace(fitted, further_failed=ended),
        Search(candidate=lane.at(1650)): fitted,
    }
    history = [
        TrialRecord(number=number, trial=trial, outcome=outcome)
        for number, (trial, outcome) in enumerate(outcomes.items(), 1)
    ]
    trial = next_trial(space, budget, history)
    assert trial is not None
    assert trial.candidate.batch_size > 1695


def test_the_remaining_time_is_positive_until_the_answer_is_confirmed() -> None:
    """The recorded curves test how good the forecast is; it expects more noise than this law has."""
    device = FakeDevice(limit_bytes=1000 * MB, law=lambda c: 50 * MB + 2 * MB * c.batch_size, headroom=0.05)
    space = SearchSpace(batch_sizes=range(1, 4097), precisions=("float32", "mixed_bfloat16"))
    history = play(space, device)
    ahead = [time_ahead_s(space, device.budget, history[:ran]) for ran in range(len(history) + 1)]
    assert ahead[0] is None
    assert all(each is not None and each > 0 for each in ahead[1:-1])
    assert ahead[-1] == 0


@pytest.mark.parametrize("kind", [Kind.HOST_OOM, Kind.TIMEOUT])
def test_host_memory_and_timeouts_bound_the_search(kind: FailureKind) -> None:
    """Whatever ends a trial except a crash rules out its size."""
    device = FakeDevice(limit_bytes=1_000, law=lambda candidate: 100 + 5 * candidate.batch_size)
    space = SearchSpace(batch_sizes=range(1, 1025), resolution=0)

    def run(trial: Trial) -> Outcome:
        outcome = device.run(trial)
        return dataclasses.replace(outcome, kind=kind) if outcome.kind is Kind.DEVICE_OOM else outcome

    history = search(space, device.budget, run)
    best = best_fit(space, history)
    assert best is not None
    assert best.candidate.batch_size == 180


@pytest.mark.parametrize(("build_s", "step_s", "slow"), [(5.0, 0.01, False), (0.5, 1.0, True)])
def test_slow_steps_leave_full_length_to_the_last_trial(build_s: float, step_s: float, slow: bool) -> None:
    """The climb ends too early, so larger batches are open after the first trial that follows it."""

    def law(candidate: Candidate) -> int:
        return 50 * MB + 2 * MB * candidate.batch_size

    def timed(trial: Trial) -> Outcome:
        needs = 1.1 if isinstance(trial, Climb) else 1.0
        device = FakeDevice(
            limit_bytes=1000 * MB,
            law=lambda candidate: int(needs * law(candidate)),
            headroom=0.05,
            step_ms=lambda candidate: 1000 * step_s * candidate.batch_size / 450,
        )
        outcome = device.run(trial)
        own_ms = 0.0 if outcome.points else (outcome.steps_run + 1) * (outcome.step_ms or 0.0)
        steps_ms = own_ms + sum(6 * point.step_ms for point in (*outcome.points, *outcome.further))
        return dataclasses.replace(outcome, duration_s=build_s + steps_ms / 1000)

    space = SearchSpace(batch_sizes=range(1, 4097))
    history = search(space, Budget(limit_bytes=1000 * MB, headroom=0.05), timed)
    assert any(record.trial.purpose is Purpose.SEARCH for record in history) == slow
    fitted = [record for record in history if record.outcome.kind is Kind.FITS]
    assert sum(record.trial.purpose is Purpose.CONFIRM for record in fitted) == (1 if slow else len(fitted))
    best = best_fit(space, history)
    assert best is not None
    assert best.confirmed_by is not None
    assert 450 * 0.98 <= best.candidate.batch_size <= 450
