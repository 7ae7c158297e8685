"""The contract of every runner: the fake device behaves like real processes with real TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oomtune.domain import Budget, Candidate, Climb, Confirm, Kind, Search, Stage
from oomtune.trials.fake import FakeDevice
from oomtune.trials.local import ForkRunner, SpawnRunner
from oomtune.trials.runner import Runner, TimeUp
from tests.support.specs import BUDGET, CPU, small_probe_spec

# Measured: the small model needs about 3 MB, plus 9 kB a sample.
FITS, NEVER_FITS = 64, 1_000_000
LANE = Candidate(batch_size=1).lane


def small_model_law(candidate: Candidate) -> int:
    return 3_000_000 + 9_000 * candidate.batch_size


def fork(budget: Budget, **overrides: Any) -> Runner:
    return ForkRunner(spec=small_probe_spec(**overrides), device=CPU, budget=budget, notice=print)


def spawn(budget: Budget, **overrides: Any) -> Runner:
    return SpawnRunner(spec=small_probe_spec(**overrides), device=CPU, budget=budget, notice=print)


def fake(budget: Budget, **overrides: Any) -> Runner:
    return FakeDevice(limit_bytes=budget.limit_bytes, headroom=budget.headroom, law=small_model_law)


@pytest.fixture(params=[fork, spawn, fake], scope="module")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    make: Callable[..., Runner] = request.param
    runner = make(BUDGET)
    yield runner
    runner.close()


def search(batch_size: int) -> Search:
    return Search(candidate=Candidate(batch_size=batch_size))


def test_a_small_batch_fits_with_a_peak_and_a_step_time(runner: Runner) -> None:
    outcome = runner.run(search(FITS))
    assert (outcome.kind, outcome.stage) == (Kind.FITS, Stage.DONE)
    assert outcome.peak_bytes is not None
    assert 1_000_000 < outcome.peak_bytes <= BUDGET.budget_bytes
    assert outcome.steps_run >= 3
    assert outcome.step_ms is not None
    assert outcome.step_ms > 0
    assert outcome.error is None


def test_a_far_too_large_batch_runs_out_of_device_memory(runner: Runner) -> None:
    outcome = runner.run(search(NEVER_FITS))
    assert outcome.kind is Kind.DEVICE_OOM
    assert outcome.stage is not Stage.DONE
    assert outcome.error is not None
    assert outcome.error.message
    assert outcome.batch_size == NEVER_FITS


def test_a_larger_batch_needs_more_memory(runner: Runner) -> None:
    peaks = [runner.run(search(batch)).peak_bytes or 0 for batch in (64, 512, 1024)]
    assert peaks == sorted(peaks)
    assert peaks[-1] > 1.5 * peaks[0]


def test_a_climb_runs_growing_sizes_until_one_exceeds_the_budget(runner: Runner) -> None:
    climb = tuple(2**power for power in range(5)) + tuple(range(32, 8192, 32))
    outcome = runner.run(Climb(lane=LANE, sizes=climb))
    sizes = [point.batch_size for point in outcome.points]
    assert sizes[0] == 1
    assert len(sizes) >= 3
    assert sizes == sorted(set(sizes))
    assert set(sizes) <= set(climb)
    assert outcome.points[0].peak_bytes < outcome.points[-1].peak_bytes <= BUDGET.budget_bytes
    assert outcome.kind is Kind.DEVICE_OOM
    # For small batches, noise can hide the slope, so the last leap may be long.
    low = outcome.points[-1].peak_bytes < 0.5 * BUDGET.budget_bytes
    assert sizes[-1] < outcome.batch_size <= (16 if low else 2) * sizes[-1]


def test_a_trial_that_fits_continues_with_larger_sizes_until_one_does_not_fit(runner: Runner) -> None:
    outcome = runner.run(dataclasses.replace(search(1024), further=tuple(range(1088, 16384, 64))))
    assert (outcome.kind, outcome.stage) == (Kind.FITS, Stage.DONE)
    assert outcome.steps_run == runner.run(search(1024)).steps_run  # larger sizes do not count
    sizes, failed = [1024, *(point.batch_size for point in outcome.further)], outcome.further_failed
    assert len(sizes) > 1 or failed is not None  # with noise, the first leap may exceed the edge
    assert sizes == sorted(set(sizes))
    assert all(point.peak_bytes <= BUDGET.budget_bytes for point in outcome.further)
    assert failed is None or (failed.batch_size > sizes[-1] and failed.kind is Kind.DEVICE_OOM)


def test_a_larger_size_that_runs_out_of_memory_does_not_undo_the_candidate(runner: Runner) -> None:
    trial = Confirm(candidate=Candidate(batch_size=FITS), further=(NEVER_FITS,))
    outcome = runner.run(trial)
    assert (outcome.kind, outcome.stage, outcome.error) == (Kind.FITS, Stage.DONE, None)
    assert outcome.further == ()
    assert outcome.further_failed is not None
    assert outcome.further_failed.batch_size == NEVER_FITS
    assert outcome.further_failed.peak_bytes is None


def test_a_trial_that_does_not_fit_runs_no_larger_size(runner: Runner) -> None:
    outcome = runner.run(dataclasses.replace(search(NEVER_FITS), further=(2 * NEVER_FITS,)))
    assert outcome.kind is Kind.DEVICE_OOM
    assert (outcome.further, outcome.further_failed) == ((), None)


def test_a_trial_without_time_left_does_not_run(runner: Runner) -> None:
    with pytest.raises(TimeUp):
        runner.run(search(FITS), within_s=0)
    assert runner.run(search(FITS), within_s=300).kind is Kind.FITS


def test_a_confirming_trial_runs_more_steps(runner: Runner) -> None:
    outcome = runner.run(Confirm(candidate=Candidate(batch_size=FITS)))
    assert outcome.kind is Kind.FITS
    assert outcome.steps_run > runner.run(search(FITS)).steps_run


def test_an_out_of_memory_trial_does_not_affect_the_next_one(runner: Runner) -> None:
    # At about half the limit, peaks vary by 5 % from run to run; peaks of small batches vary by 20 %.
    before = runner.run(search(1024)).peak_bytes
    runner.run(search(NEVER_FITS))
    after = runner.run(search(1024)).peak_bytes
    assert after == pytest.approx(before, rel=0.25)


@pytest.mark.parametrize("make", [fork, spawn, fake])
def test_a_run_with_a_peak_over_the_budget_does_not_fit(make: Callable[..., Runner]) -> None:
    runner = make(Budget(limit_bytes=BUDGET.limit_bytes, headroom=0.85))
    try:
        outcome = runner.run(search(1024))
    finally:
        runner.close()
    assert (outcome.kind, outcome.stage) == (Kind.DEVICE_OOM, Stage.DONE)
    assert outcome.error is not None
    assert outcome.error.code == "over_headroom"


@pytest.mark.parametrize("make", [fork, spawn])
def test_closing_twice_is_safe_and_leaves_no_scratch_folder(make: Callable[..., Any]) -> None:
    runner = make(BUDGET)
    folder: Path = runner.host.root
    assert folder.is_dir()
    runner.close()
    runner.close()
    assert not folder.exists()


SLEEPY = """
import time
import keras
import tensorflow as tf

class Sleepy(keras.layers.Layer):
    '''Never ends with more than 16 samples.'''

    def call(self, inputs):
        rounds = tf.where(tf.shape(inputs)[0] > 16, tf.constant(10**15, tf.int64), 0)
        turns = tf.while_loop(lambda turn: turn < rounds, lambda turn: (turn + 1,), [tf.constant(0, tf.int64)])
        return inputs + tf.cast(turns[0], inputs.dtype) * 0

    def compute_output_shape(self, shape):
        return shape

def build(slow_to_build=False):
    time.sleep(600 * slow_to_build)
    inputs = keras.Input((64,))
    hidden = keras.layers.Dense(512)(Sleepy()(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))
"""


@pytest.mark.parametrize("slow_to_build", [True, False])
def test_a_climb_that_runs_out_of_time_keeps_the_sizes_that_ran(tmp_path: Path, slow_to_build: bool) -> None:
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    spec = small_probe_spec(tmp_path, model={"builder": "sleepy:build", "args": {"slow_to_build": slow_to_build}})
    runner = ForkRunner(spec=spec, device=CPU, budget=BUDGET, notice=print)
    trial = Climb(lane=LANE, sizes=(1, 4, 16, 64, 256))
    try:
        runner.host.wait_until_ready()
        if slow_to_build:
            with pytest.raises(TimeUp):
                runner.run(trial, within_s=2)
        else:
            outcome = runner.run(trial, within_s=12)
            assert outcome.kind is Kind.FITS
            assert [point.batch_size for point in outcome.points] == [1, 4, 16]
    finally:
        runner.close()
