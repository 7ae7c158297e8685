"""Remedies in the search: gradient accumulation, lighter optimizers, and precisions that can't train."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomtune.diagnosis.nothing_fits import smallest_failure
from oomtune.domain import (
    Candidate,
    Confirm,
    Kind,
    Outcome,
    Purpose,
    SearchSpace,
    Trial,
    TrialError,
    Verdict,
)
from oomtune.report.answer import answer_rows
from oomtune.search import best_fit
from oomtune.search.answer import micro_batch
from oomtune.trials.fake import FakeDevice, Law
from tests.benchmarks.searching import play
from tests.support.outcomes import failed
from tests.support.sessions import Notices, linear_device, probe
from tests.support.specs import small_probe_spec


@given(effective=st.integers(1, 5_000), largest=st.integers(1, 5_000), step=st.integers(1, 64))
def test_micro_batches_add_up_to_the_nearest_batch_not_below_the_effective_one(
    effective: int, largest: int, step: int
) -> None:
    axis = range(step, 5_001, step)
    if largest % step or not step <= largest <= effective:
        return
    size = micro_batch(axis, effective, largest)
    steps = math.ceil(effective / size)
    assert size in axis
    assert size <= largest
    assert steps * size >= effective
    if any(effective % near == 0 and near in axis for near in range(math.ceil(0.9 * largest), largest + 1)):
        assert steps * size == effective
        assert size >= 0.9 * largest
    elif steps * size != effective:
        # No other size comes nearer in as few steps.
        assert steps == math.ceil(effective / largest)
        assert all(steps * other < effective for other in axis if other < size)


def test_the_answer_is_a_divisor_of_the_effective_batch_when_one_is_near() -> None:
    device = linear_device()
    space = SearchSpace(batch_sizes=range(1, 1001), effective_batch_size=1_000, resolution=0)
    history = play(space, device)
    best = best_fit(space, history)
    assert best is not None
    assert best.candidate.batch_size == 167  # 180 fits; 1000 has no divisor from 162 on, and 6 times 167 is 1002
    assert best.confirmed_by is not None
    assert device.ran[-1] == Confirm(candidate=Candidate(batch_size=167))
    even = SearchSpace(batch_sizes=range(1, 1001), effective_batch_size=1_020, resolution=0)
    answer = best_fit(even, play(even, device))
    assert answer is not None
    assert answer.candidate.batch_size == 170


@pytest.mark.parametrize(("effective", "largest"), [(512, 256), (512, 259), (1_024, 256), (640, 80), (256, 64)])
def test_a_divisor_that_may_fit_runs_before_it_is_given_up(effective: int, largest: int) -> None:
    """The edge is known to 2 %, and the divisor may lie in those 2 %."""
    device = FakeDevice(limit_bytes=100 + 5 * largest, law=lambda candidate: 100 + 5 * candidate.batch_size)
    space = SearchSpace(batch_sizes=range(1, effective + 1), effective_batch_size=effective)
    best = best_fit(space, play(space, device))
    assert best is not None
    assert best.confirmed_by is not None
    assert effective % best.candidate.batch_size == 0
    assert best.candidate.batch_size >= 0.9 * largest


def test_the_effective_batch_is_tried_in_one_piece_because_it_needs_no_copy_of_the_weights() -> None:
    def law(candidate: Candidate) -> int:
        return 100 + 5 * candidate.batch_size + (400 if candidate.batch_size < 100 else 0)

    device = FakeDevice(limit_bytes=950, law=law, parameters=100)
    space = SearchSpace(batch_sizes=range(1, 101), effective_batch_size=100)
    best = best_fit(space, play(space, device))
    assert best is not None
    assert best.candidate.batch_size == 100
    assert best.confirmed_by is not None
    tight = FakeDevice(limit_bytes=590, law=law, parameters=100)
    play(space, tight)
    assert Candidate(batch_size=100) not in {trial.candidate for trial in tight.ran}


def test_the_size_just_above_the_effective_batch_is_nearer_than_two_micro_batches() -> None:
    spec = small_probe_spec(
        training__effective_batch_size=100, search__batch_size={"min": 8, "max": 512, "multiple_of": 8}
    )
    assert spec.space.batch_sizes[-1] == 104
    device = linear_device()
    result = probe(device, device.budget, spec)
    assert result.best is not None
    assert result.best.candidate.batch_size == 104
    row = dict(answer_rows(result))["gradient accumulation"]
    assert row == "no, effective batch 104, the nearest to 100: no micro-batch near this size divides it"


def test_a_divisor_that_fails_is_given_up() -> None:
    def law(candidate: Candidate) -> int:
        return 100 + 5 * candidate.batch_size + (900 if candidate.batch_size == 170 else 0)

    device = FakeDevice(limit_bytes=1_000, law=law)
    # With few sizes, neither a climb nor a bisection runs the exception.
    space = SearchSpace(batch_sizes=(100, 150, 170, 180), effective_batch_size=1_020, resolution=0.1)
    history = play(space, device)
    best = best_fit(space, history)
    assert best is not None
    assert best.candidate.batch_size in (150, 180)
    assert best.confirmed_by is not None


def test_the_report_shows_how_micro_batches_add_up() -> None:
    device = linear_device()
    for effective, words in ((1_020, "6 steps, effective batch 1020"), (1_000, "6 steps, effective batch 1002, the n")):
        spec = small_probe_spec(training__effective_batch_size=effective, search__resolution=0.0)
        rows = dict(answer_rows(probe(device, device.budget, spec)))
        assert rows["gradient accumulation"].startswith(words)


def by_optimizer(**fixed_bytes: int) -> Law:
    return lambda candidate: fixed_bytes[candidate.optimizer or ""] + 5 * candidate.batch_size


def test_a_lighter_optimizer_is_used_only_when_nothing_fits_with_those_before_it() -> None:
    device = FakeDevice(limit_bytes=1_000, law=by_optimizer(adam=950, adafactor=500, sgd=100))
    roomy = small_probe_spec(search__optimizer=["adam", "adafactor", "sgd"])
    result = probe(device, device.budget, roomy)
    assert result.best is not None
    assert result.best.candidate.optimizer == "adam"
    assert {trial.candidate.optimizer for trial in device.ran} == {"adam"}
    floor = small_probe_spec(search__optimizer=["adam", "adafactor", "sgd"], search__min_batch_size=64)
    result = probe(device, device.budget, floor)
    assert result.best is not None
    assert result.best.candidate.optimizer == "adafactor"
    assert 64 <= result.best.candidate.batch_size <= 100
    assert dict(answer_rows(result))["optimizer"] == "adafactor; no batch of at least 64 samples fits with adam"
    too_high = small_probe_spec(search__optimizer=["adam", "adafactor", "sgd"], search__min_batch_size=512)
    result = probe(device, device.budget, too_high)
    assert result.verdict is Verdict.NOTHING_FITS
    assert {trial.candidate.optimizer for trial in device.ran} == {"adam", "adafactor", "sgd"}


class Overflows:
    """A device where more fits in half precision, but the loss of a confirm run overflows."""

    def __init__(self, *precisions: str) -> None:
        self.device = FakeDevice(limit_bytes=1_000, law=lambda c: (50 if c.lane.is_half else 100) + 5 * c.batch_size)
        self.precisions = precisions

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        outcome = self.device.run(trial, within_s=within_s)
        if trial.purpose is Purpose.CONFIRM and trial.candidate.precision in self.precisions:
            error = TrialError(code="loss_not_finite", message="the loss is inf at step 7")
            return failed(Kind.CRASH, error=error)
        return outcome

    def close(self) -> None:
        self.device.close()


def test_a_precision_that_overflows_is_refused_and_the_next_one_is_the_answer() -> None:
    spec = small_probe_spec(search__precision=["mixed_float16", "float32"], search__resolution=0.0)
    runner = Overflows("mixed_float16")
    notices = Notices()
    result = probe(runner, runner.device.budget, spec, observer=notices)
    assert notices.notices == ["mixed_float16 is refused: the loss is inf at step 7"]
    assert result.verdict is Verdict.TUNED
    assert result.best is not None
    assert result.best.candidate == Candidate(batch_size=180, precision="float32")
    assert dict(answer_rows(result))["precision"] == "float32; mixed_float16 refused: the loss is inf at step 7"
    again = probe(runner, runner.device.budget, spec, earlier=result.records)
    assert again.new_trials == 0
    assert again.best == result.best


@pytest.mark.parametrize("largest", [100, 400])
def test_the_smallest_failure_is_not_one_of_a_precision_that_was_refused(largest: int) -> None:
    sizes = {"min": 60, "max": largest}
    spec = small_probe_spec(search__precision=["mixed_float16", "float32"], search__batch_size=sizes)
    runner = Overflows("mixed_float16")
    runner.device.law = lambda candidate: (2 if candidate.lane.is_half else 20) * candidate.batch_size
    result = probe(runner, runner.device.budget, spec)
    assert result.verdict is Verdict.NOTHING_FITS
    smallest, error = smallest_failure(result)
    assert (smallest, error.code) == (Candidate(batch_size=60, precision="float32"), "device_oom")


def test_the_probe_fails_when_every_precision_is_refused() -> None:
    spec = small_probe_spec(search__precision=["mixed_float16", "mixed_bfloat16"])
    runner = Overflows("mixed_float16", "mixed_bfloat16")
    result = probe(runner, runner.device.budget, spec)
    assert result.verdict is Verdict.FAILED
    assert result.problem is not None
    assert result.problem.code == "loss_not_finite"
    assert probe(runner, runner.device.budget, spec, earlier=result.records).verdict is Verdict.FAILED


def test_a_loss_that_is_not_a_number_in_float32_stops_the_probe() -> None:
    spec = small_probe_spec(search__precision=["float32", "mixed_float16"])
    runner = Overflows("float32")
    runner.device.law = lambda candidate: (500 if candidate.lane.is_half else 100) + 5 * candidate.batch_size
    assert probe(runner, runner.device.budget, spec).verdict is Verdict.FAILED
