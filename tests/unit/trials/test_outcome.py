"""Endings are judged by exception type, then message structure, then signal and the end of the output."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from oomtune.diagnosis.nothing_fits import nothing_fits_error
from oomtune.domain import (
    FRAGMENTATION,
    AllocatorState,
    Budget,
    Candidate,
    Climb,
    Confirm,
    Failed,
    FailedSize,
    Finding,
    Kind,
    Point,
    RaisedError,
    Reply,
    Search,
    Stage,
    TrialError,
)
from oomtune.trials.outcome import Ending, decide, explain_leak, leak_bytes_per_step
from oomtune.units import MIB, format_bytes
from tests.support.finished import finished

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


def test_times_are_rounded_once_so_that_every_format_shows_the_same_digits() -> None:
    reply = dataclasses.replace(done(900), step_ms=(1.0011, 1.0022))
    outcome = decide(SEARCH, BUDGET, Ending(reply=reply, exit_code=0, duration_s=1.7198630789999925))
    assert (outcome.step_ms, outcome.duration_s) == (1.002, 1.72)


def test_a_run_that_uses_the_headroom_does_not_fit_and_the_error_says_why() -> None:
    outcome = decide(SEARCH, BUDGET, Ending(reply=done(901), exit_code=0))
    assert (outcome.kind, outcome.stage) == (Kind.DEVICE_OOM, Stage.DONE)
    assert outcome.error is not None
    assert "less 10% headroom" in outcome.error.message


def went_further(error: RaisedError | None = None, peak: int = 850) -> Reply:
    further = (Point(batch_size=9, peak_bytes=peak, step_ms=1.0),)
    return dataclasses.replace(done(800), further=further, further_at=10, further_error=error)


def test_a_larger_size_over_the_budget_keeps_its_peak() -> None:
    outcome = decide(SEARCH, BUDGET, Ending(reply=went_further(peak=950), exit_code=0))
    assert (outcome.kind, outcome.peak_bytes, outcome.further) == (Kind.FITS, 800, ())
    assert outcome.further_failed == FailedSize(batch_size=9, kind=Kind.DEVICE_OOM, peak_bytes=950)


def test_a_larger_size_that_runs_out_of_memory_does_not_undo_the_candidate() -> None:
    error = raised("ResourceExhaustedError", "OpError", message=RESOURCE).error
    outcome = decide(CONFIRM, BUDGET, Ending(reply=went_further(error), exit_code=0))
    assert (outcome.kind, outcome.error) == (Kind.FITS, None)
    assert [point.batch_size for point in outcome.further] == [9]
    assert outcome.further_failed == FailedSize(batch_size=10, kind=Kind.DEVICE_OOM)


def test_a_larger_size_that_fails_without_a_memory_error_is_not_too_big() -> None:
    outcome = decide(SEARCH, BUDGET, Ending(reply=went_further(raised("ValueError").error), exit_code=0))
    assert (outcome.kind, outcome.further_failed) == (Kind.FITS, None)


@pytest.mark.parametrize("timed_out", [True, False])
def test_a_process_lost_at_a_larger_size_has_still_proved_the_candidate(timed_out: bool) -> None:
    ending = Ending(reply=None, so_far=went_further(), exit_code=-signal.SIGKILL, timed_out=timed_out)
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
def test_the_exception_type_decides_before_the_structure_of_the_message(reply: Reply, kind: Kind) -> None:
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


def test_a_climb_that_runs_out_of_memory_keeps_its_smaller_sizes() -> None:
    points = (Point(batch_size=1, peak_bytes=100, step_ms=1), Point(batch_size=4, peak_bytes=400, step_ms=1))
    error = RaisedError(type_name="x.AllocatorStalled", bases=(), message="no room", traceback="")
    reply = Reply(stage=Stage.TRAIN, points=points, batch_size=16, error=error)
    outcome = decide(CLIMB, BUDGET, Ending(reply=reply, exit_code=0))
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.points, outcome.batch_size) == (Kind.DEVICE_OOM, points, 16)


def test_a_size_of_a_climb_over_the_budget_does_not_fit() -> None:
    points = (Point(batch_size=1, peak_bytes=100, step_ms=1), Point(batch_size=4, peak_bytes=950, step_ms=1))
    outcome = decide(CLIMB, BUDGET, Ending(reply=Reply(stage=Stage.DONE, points=points, peak_bytes=950), exit_code=0))
    assert outcome.kind is Kind.DEVICE_OOM
    assert [point.batch_size for point in outcome.points] == [1]
    assert outcome.batch_size == 4


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
def test_only_steady_growth_is_a_leak(memory: list[int], per_step: int) -> None:
    assert leak_bytes_per_step(memory, room_bytes=MIB) == pytest.approx(per_step, rel=0.15)
    reply = Reply(stage=Stage.DONE, peak_bytes=1, memory_after_step_bytes=tuple(memory))
    assert decide(CONFIRM, BUDGET, Ending(reply=reply, exit_code=0)).leak_bytes_per_step == pytest.approx(
        per_step, rel=0.15
    )


def test_slow_growth_is_a_leak_only_if_it_soon_fills_the_room_that_is_left() -> None:
    """At 10 GiB, 1 MiB a step is a ten-thousandth of what is in use, yet it fills 512 MiB in 512 steps."""
    memory = [10 * 1024 * MIB + step * MIB for step in range(20)]
    assert leak_bytes_per_step(memory, room_bytes=512 * MIB) == MIB
    assert leak_bytes_per_step(memory, room_bytes=64 * 1024 * MIB) == 0


KEPT = Finding(kind="kept_tensors", message="a list grows", where="a.py:7", hint="clear it", bytes_per_step=1000)
TRACED = Finding(kind="retrace", message="f() was traced 9 times in 9 steps", where="a.py:8", hint="pass tensors")


@pytest.mark.parametrize(
    ("findings", "leak_bytes_per_step", "reported"),
    [
        ((), 0, []),
        ((KEPT,), 0, [("kept_tensors", 1000)]),
        ((KEPT,), 1100, [("kept_tensors", 1000)]),
        ((KEPT,), 9000, [("kept_tensors", 1000), ("leak", 9000)]),
        ((TRACED,), 9000, [("retrace", 9000)]),
        ((), 9000, [("leak", 9000)]),
    ],
)
def test_a_leak_without_an_explanation_becomes_a_finding(
    findings: tuple[Finding, ...], leak_bytes_per_step: int, reported: list[tuple[str, int]]
) -> None:
    all_findings = explain_leak(findings, leak_bytes_per_step)
    assert [(finding.kind, finding.bytes_per_step) for finding in all_findings] == reported


LARGE_BUDGET = Budget(limit_bytes=100 * MIB)


def no_room(
    *, in_use: int, largest_free: int, largest_held: int = 1, allocator: str = "GPU_0_bfc", elements: int | None = None
) -> Ending:
    """Return the ending of a trial that found no room. If given, `elements` is the number of 4-byte elements in its error."""
    stalled = RaisedError(type_name="x.AllocatorStalled", bases=("AllocatorStalled",), message="no room", traceback="")
    message = (
        f"OOM when allocating tensor with shape[{elements}] and type float on /job:localhost/replica:0/task:0/device:GPU:0 "
        f"by allocator {allocator}"
    )
    raised = RaisedError(
        type_name="x.ResourceExhaustedError", bases=("ResourceExhaustedError", "OpError"), message=message, traceback=""
    )
    state = AllocatorState(
        allocator=allocator,
        limit_bytes=100 * MIB,
        in_use_bytes=in_use * MIB,
        largest_free_bytes=largest_free * MIB,
        largest_held_bytes=largest_held * MIB,
        fragmentation=0.8,
    )
    error = stalled if elements is None else raised
    return Ending(reply=Reply(stage=Stage.TRAIN, allocator=state, error=error), exit_code=0)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (no_room(in_use=70, largest_free=6, elements=10 * MIB // 4), "fragmentation"),
        (no_room(in_use=70, largest_free=6, elements=40 * MIB // 4), "device_oom"),
        (no_room(in_use=90, largest_free=1, elements=5 * MIB // 4), "device_oom"),
        (no_room(in_use=85, largest_free=1, elements=5 * MIB // 4), "device_oom"),
        (no_room(in_use=70, largest_free=6, largest_held=8), "fragmentation"),
        (no_room(in_use=70, largest_free=9, largest_held=8), "device_oom"),
        (no_room(in_use=70, largest_free=12, elements=10 * MIB // 4), "device_oom"),
        (no_room(in_use=1, largest_free=6, largest_held=8), "device_oom"),
        (no_room(in_use=70, largest_free=9, largest_held=35), "device_oom"),
    ],
    ids=[
        "enough is free, in smaller pieces",
        "the request exceeds the free memory",
        "little is free",
        "only 15 % is free",
        "unknown request: enough is free for the largest tensor, in smaller pieces",
        "unknown request: a piece is large enough for the largest tensor",
        "a piece is large enough for the request",
        "almost nothing is in use",
        "unknown request: the largest tensor exceeds the free memory",
    ],
)
def test_fragmentation_needs_enough_free_memory_in_pieces_that_are_too_small(ending: Ending, code: str) -> None:
    outcome = decide(SEARCH, LARGE_BUDGET, ending)
    assert outcome.kind is Kind.DEVICE_OOM
    assert outcome.allocator is not None
    assert outcome.error is not None
    assert outcome.error.code == code


def test_a_fragmentation_error_has_the_allocators_figures_and_suggests_another_allocator() -> None:
    error = decide(SEARCH, LARGE_BUDGET, no_room(in_use=70, largest_free=6, elements=10 * MIB // 4)).error
    assert error is not None
    assert error.message == (
        "fragmentation: 30% of the limit of 100 MiB is free, in pieces of at most 6.0 MiB, and the model requested "
        "10.0 MiB (GPU_0_bfc, 70.0 MiB in use, fragmentation 0.80)"
    )
    assert "device.allocator: cuda_malloc_async" in error.hint


def test_on_the_cpu_a_fragmentation_error_suggests_a_smaller_batch() -> None:
    ending = no_room(in_use=70, largest_free=6, largest_held=8, allocator="bfc_cpu_allocator_for_gpu")
    error = decide(SEARCH, LARGE_BUDGET, ending).error
    assert error is not None
    assert "the model has tensors of 8.0 MiB" in error.message
    assert error.hint.startswith("use a smaller batch")


PIECES = TrialError(code=FRAGMENTATION, message="fragmentation: 30% of the limit is free", hint="use another allocator")


@pytest.mark.parametrize(("required_mib", "is_blamed"), [(None, True), (90, True), (1_500, False)])
def test_fragmentation_is_blamed_only_if_the_limit_is_large_enough(required_mib: int | None, is_blamed: bool) -> None:
    result = dataclasses.replace(finished(limit_bytes=30 * MIB), budget=LARGE_BUDGET)
    required_bytes = None if required_mib is None else required_mib * MIB
    error = nothing_fits_error(result, SEARCH.candidate, required_bytes, PIECES)
    assert (PIECES.message in error.message) == is_blamed
    assert error.hint.startswith(PIECES.hint) == is_blamed
    assert required_mib is None or format_bytes(required_mib * MIB) in error.message
