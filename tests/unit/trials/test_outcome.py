"""What an ending means, decided from type, then structure, then signal and last words."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from oomtune.domain import (
    Budget,
    Candidate,
    Climb,
    Confirm,
    Failed,
    FailedSize,
    Kind,
    Point,
    RaisedError,
    Reply,
    Search,
    Stage,
)
from oomtune.trials.leaks import leak
from oomtune.trials.outcome import Ending, decide

BUDGET = Budget(limit_bytes=1000, headroom=0.1)
SEARCH = Search(candidate=Candidate(batch_size=8))
CONFIRM = Confirm(candidate=Candidate(batch_size=8))
CLIMB = Climb(lane=Candidate(batch_size=1).lane, sizes=(1, 4, 16))


def done(peak: int) -> Reply:
    return Reply(stage=Stage.DONE, peak_bytes=peak, step_ms=(3.0, 1.0, 2.0), validated=True)


def raised(name: str, *bases: str, message: str = "") -> Reply:
    error = RaisedError(type_name=f"somewhere.{name}", bases=(name, *bases, "Exception"), message=message, traceback="")
    return Reply(stage=Stage.TRAIN, error=error)


def test_a_run_within_the_budget_fits() -> None:
    outcome = decide(SEARCH, BUDGET, Ending(reply=done(900), exit_code=0))
    assert (outcome.kind, outcome.peak_bytes, outcome.step_ms, outcome.steps_run) == (Kind.FITS, 900, 2.0, 3)
    assert outcome.validated


def test_times_are_rounded_before_anything_shows_them() -> None:
    reply = dataclasses.replace(done(900), step_ms=(1.0011, 1.0022))
    outcome = decide(SEARCH, BUDGET, Ending(reply=reply, exit_code=0, duration_s=1.7198630789999925))
    assert (outcome.step_ms, outcome.duration_s) == (1.002, 1.72)


def test_a_run_that_eats_into_the_headroom_does_not_fit_and_says_so() -> None:
    outcome = decide(SEARCH, BUDGET, Ending(reply=done(901), exit_code=0))
    assert (outcome.kind, outcome.stage) == (Kind.DEVICE_OOM, Stage.DONE)
    assert outcome.error is not None
    assert "less 10% headroom" in outcome.error.message


def went_on(error: RaisedError | None = None, peak: int = 850) -> Reply:
    further = (Point(batch_size=9, peak_bytes=peak, step_ms=1.0),)
    return dataclasses.replace(done(800), further=further, further_at=10, further_error=error)


def test_the_size_that_is_over_the_budget_after_one_that_fitted_is_known_with_its_peak() -> None:
    outcome = decide(SEARCH, BUDGET, Ending(reply=went_on(peak=950), exit_code=0))
    assert (outcome.kind, outcome.peak_bytes, outcome.further) == (Kind.FITS, 800, ())
    assert outcome.further_failed == FailedSize(batch_size=9, kind=Kind.DEVICE_OOM, peak_bytes=950)


def test_the_size_that_runs_out_of_memory_after_others_does_not_undo_them() -> None:
    error = raised("ResourceExhaustedError", "OpError", message=RESOURCE).error
    outcome = decide(CONFIRM, BUDGET, Ending(reply=went_on(error), exit_code=0))
    assert (outcome.kind, outcome.error) == (Kind.FITS, None)
    assert [point.batch_size for point in outcome.further] == [9]
    assert outcome.further_failed == FailedSize(batch_size=10, kind=Kind.DEVICE_OOM)


def test_a_larger_size_that_fails_for_another_reason_is_not_too_big() -> None:
    outcome = decide(SEARCH, BUDGET, Ending(reply=went_on(raised("ValueError").error), exit_code=0))
    assert (outcome.kind, outcome.further_failed) == (Kind.FITS, None)


@pytest.mark.parametrize("timed_out", [True, False])
def test_a_process_that_is_lost_among_larger_sizes_has_still_proved_its_own(timed_out: bool) -> None:
    ending = Ending(reply=None, so_far=went_on(), exit_code=-signal.SIGKILL, timed_out=timed_out)
    assert decide(CONFIRM, BUDGET, ending).kind is Kind.FITS
    half_way = dataclasses.replace(done(800), stage=Stage.TRAIN)
    lost = decide(CONFIRM, BUDGET, dataclasses.replace(ending, so_far=half_way))
    assert lost.kind is (Kind.TIMEOUT if timed_out else Kind.HOST_OOM)


RESOURCE = (
    "OOM when allocating tensor with shape[8,9] and type float on /job:localhost/device:GPU:0 by allocator GPU_0_bfc"
)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (raised("ResourceExhaustedError", "OpError", message=RESOURCE), Kind.DEVICE_OOM),
        (raised("AllocatorStalled", message="no room"), Kind.DEVICE_OOM),
        (raised("InternalError", "OpError", message="Dst tensor is not initialized."), Kind.DEVICE_OOM),
        (
            raised("XlaRuntimeError", message="RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes"),
            Kind.DEVICE_OOM,
        ),
        (raised("MemoryError"), Kind.HOST_OOM),
        (raised("_ArrayMemoryError", "MemoryError"), Kind.HOST_OOM),
        (raised("ResourceExhaustedError", "OpError", message="model.tempstate1; No space left on device"), Kind.CRASH),
        (raised("ValueError", message=RESOURCE), Kind.CRASH),
        (raised("InvalidArgumentError", "OpError", message="Incompatible shapes: [8,9] vs. [9]"), Kind.CRASH),
        (raised("SystemExit"), Kind.CRASH),
    ],
)
def test_the_type_decides_and_then_the_structure_of_the_message(reply: Reply, kind: Kind) -> None:
    outcome = decide(SEARCH, BUDGET, Ending(reply=reply, exit_code=0))
    assert outcome.kind is kind
    assert isinstance(outcome, Failed)
    assert outcome.batch_size == 8


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (Ending(reply=None, exit_code=-signal.SIGKILL), Kind.HOST_OOM),
        (Ending(reply=None, exit_code=-signal.SIGKILL, timed_out=True, duration_s=9), Kind.TIMEOUT),
        (Ending(reply=None, exit_code=-signal.SIGABRT, stderr_tail="terminate called: std::bad_alloc"), Kind.HOST_OOM),
        (
            Ending(reply=None, exit_code=-signal.SIGABRT, stderr_tail="Check failed: CUDNN_STATUS_ALLOC_FAILED"),
            Kind.DEVICE_OOM,
        ),
        (Ending(reply=None, exit_code=-signal.SIGSEGV), Kind.CRASH),
        (Ending(reply=None, exit_code=-signal.SIGILL), Kind.CRASH),
        (Ending(reply=None, exit_code=0), Kind.CRASH),
        (Ending(reply=None, exit_code=3, stderr_tail="some words"), Kind.CRASH),
        (Ending(reply=None, exit_code=None), Kind.CRASH),
        (Ending(reply=Reply(stage=Stage.TRAIN, step_ms=(1.0,)), exit_code=0), Kind.CRASH),
    ],
)
def test_no_reply_is_never_a_success(ending: Ending, kind: Kind) -> None:
    outcome = decide(SEARCH, BUDGET, ending)
    assert outcome.kind is kind
    assert outcome.error is not None
    assert outcome.error.message


def test_a_climb_keeps_the_points_it_had_when_it_ran_out() -> None:
    points = (Point(batch_size=1, peak_bytes=100, step_ms=1), Point(batch_size=4, peak_bytes=400, step_ms=1))
    error = RaisedError(type_name="x.AllocatorStalled", bases=(), message="no room", traceback="")
    reply = Reply(stage=Stage.TRAIN, points=points, batch_size=16, error=error)
    outcome = decide(CLIMB, BUDGET, Ending(reply=reply, exit_code=0))
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.points, outcome.batch_size) == (Kind.DEVICE_OOM, points, 16)


def test_a_point_of_a_climb_that_is_over_the_budget_is_no_fit() -> None:
    points = (Point(batch_size=1, peak_bytes=100, step_ms=1), Point(batch_size=4, peak_bytes=950, step_ms=1))
    outcome = decide(CLIMB, BUDGET, Ending(reply=Reply(stage=Stage.DONE, points=points, peak_bytes=950), exit_code=0))
    assert outcome.kind is Kind.DEVICE_OOM
    assert [point.batch_size for point in outcome.points] == [1]
    assert outcome.batch_size == 4


MIB = 1024**2


@pytest.mark.parametrize(
    ("memory", "per_step"),
    [
        ([10 * MIB] * 20, 0),
        ([10 * MIB + step * 100_000 for step in range(20)], 100_000),
        ([10 * MIB + min(step, 9) * MIB for step in range(20)], 0),
        ([10 * MIB + (step % 2) * MIB for step in range(20)], 0),
        ([10 * MIB + step // 2 * 100_000 for step in range(20)], 50_000),
        ([10 * MIB + (step > 14) * 100_000 for step in range(20)], 0),
        ([10 * MIB + step * 100_000 - (step % 3) * 1000 for step in range(20)], 100_000),
        ([10 * MIB + step * 4 for step in range(20)], 0),
        ([10 * MIB, 11 * MIB], 0),
        ([], 0),
    ],
    ids=[
        "steady", "climbing", "settling", "swinging", "every second step", "one jump", "with noise", "too little",
        "too short", "none",
    ],
)  # fmt: skip
def test_only_memory_that_goes_on_climbing_is_a_leak(memory: list[int], per_step: int) -> None:
    assert leak(memory, room_bytes=MIB) == pytest.approx(per_step, rel=0.15)
    reply = Reply(stage=Stage.DONE, peak_bytes=1, memory_after_step_bytes=tuple(memory))
    told = decide(CONFIRM, BUDGET, Ending(reply=reply, exit_code=0)).leak_bytes_per_step
    assert told == pytest.approx(per_step, rel=0.15)


def test_a_leak_is_held_against_the_room_that_is_left() -> None:
    """At ten gibibytes a mebibyte a step is a ten-thousandth of what is held, and fills half a gibibyte in no time."""
    memory = [10 * 1024 * MIB + step * MIB for step in range(20)]
    assert leak(memory, room_bytes=512 * MIB) == MIB
    assert leak(memory, room_bytes=64 * 1024 * MIB) == 0
