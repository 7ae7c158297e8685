"""Decide how a trial ended. No other module makes this decision.

The type of an exception counts first, then the structure of its message (status, allocator, device), then the exit
signal and the tail of stderr. A trial without a reply never fits. Only lack of memory makes a candidate too large.
"""

from __future__ import annotations

import itertools
import signal
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oomtune.diagnosis import classify
from oomtune.domain import (
    FRAGMENTATION,
    AllocatorState,
    Budget,
    Climb,
    Climbed,
    Failed,
    FailedSize,
    FailureKind,
    Finding,
    Fitted,
    Kind,
    Outcome,
    Point,
    Purpose,
    RaisedError,
    Reply,
    Stage,
    Trial,
    TrialError,
)
from oomtune.units import MIB, format_bytes, format_bytes_apart

_OUT_OF_MEMORY: dict[str, FailureKind] = {"device_oom": Kind.DEVICE_OOM, "host_oom": Kind.HOST_OOM}

# Memory is fragmented when more than this share of the limit is free, in pieces too small for the request ...
_FREE_SHARE = 0.15
# ... and more than this share is in use. With less in use, the request alone was too large.
_IN_USE_SHARE = 0.1

# Growth is a leak when it fills the remaining room within so many steps ...
_STEPS_TO_FULL = 1000
# ... or when each step adds at least this share of the memory in use.
_LEAK_SHARE = 0.0005
_LEAK_BYTES = MIB / 64
# Growth below this is noise.
_NOISE_BYTES = 1024
_FEWEST_STEPS = 4
# Growth is steady when at least this share of the steps adds memory, ...
_RISING_SHARE = 0.4
# ... other steps give back at most this share of what was added, ...
_FALLING_SHARE = 0.25
# ... and no single step adds more than this share of the total.
_JUMP_SHARE = 0.6
# Findings explain a leak when they account for at least this share of it.
_EXPLAINED_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A finished trial as its parent process sees it. A negative exit code is the signal that ended the process.

    `so_far` is the worker's last note. It proves that the candidate fits only if its stage is `DONE`: every step of the
    candidate ran, and the process was lost at a larger size.
    """

    reply: Reply | None
    exit_code: int | None
    so_far: Reply | None = None
    stderr_tail: str = ""
    timed_out: bool = False
    duration_s: float = 0.0


def decide(trial: Trial, budget: Budget, ending: Ending) -> Outcome:
    """Return how the trial ended."""
    if ending.reply is None and ending.so_far is not None and ending.so_far.stage is Stage.DONE:
        ending = replace(ending, reply=ending.so_far, timed_out=False)
    reply = ending.reply or ending.so_far or Reply(stage=Stage.BUILD)
    points, over = _split_at_budget(reply.points, budget)
    failure = _failure(trial, budget, ending)
    if failure is None and over is not None:
        failure = Kind.DEVICE_OOM, over_headroom_error(max(point.peak_bytes for point in reply.points), budget)
    peak_bytes = reply.peak_bytes or 0
    leak = 0
    if trial.purpose is Purpose.CONFIRM:
        leak = leak_bytes_per_step(reply.memory_after_step_bytes, budget.limit_bytes - peak_bytes)
    measurements: dict[str, Any] = {
        # Round here, so that all output shows the same digits.
        "step_ms": round(statistics.median(reply.step_ms), 3) if reply.step_ms else None,
        "steps_run": len(reply.step_ms),
        "leak_bytes_per_step": leak,
        "findings": explain_leak(reply.findings, leak),
        "jit_compile": reply.jit_compile,
        "parameters": reply.parameters,
        "validated": reply.validated,
        "duration_s": round(ending.duration_s, 3),
    }
    if failure is not None:
        kind, error = failure
        allocator = _allocator(reply) if kind is Kind.DEVICE_OOM else None
        return Failed(
            kind=kind,
            stage=reply.stage,
            error=_fragmentation_error(allocator) or error,
            batch_size=over.batch_size if over else reply.batch_size or trial.candidate.batch_size,
            peak_bytes=reply.peak_bytes,
            points=points,
            allocator=allocator,
            **measurements,
        )
    if points:
        return Climbed(peak_bytes=peak_bytes, points=points, **measurements)
    further, failed = _larger_sizes(reply, budget)
    return Fitted(peak_bytes=peak_bytes, anatomy=reply.anatomy, further=further, further_failed=failed, **measurements)


def _split_at_budget(points: Sequence[Point], budget: Budget) -> tuple[tuple[Point, ...], Point | None]:
    """Return the points within the budget, and the smallest one above it."""
    over = [point for point in points if point.peak_bytes > budget.budget_bytes]
    within = tuple(point for point in points if point.peak_bytes <= budget.budget_bytes)
    return within, min(over, key=lambda point: point.batch_size, default=None)


def _larger_sizes(reply: Reply, budget: Budget) -> tuple[tuple[Point, ...], FailedSize | None]:
    """Return the larger sizes that fitted after the candidate, and the one that did not.

    Ignore errors other than memory: a trial with that size as its candidate will report them.
    """
    fitted, over = _split_at_budget(reply.further, budget)
    if over is not None:
        return fitted, FailedSize(batch_size=over.batch_size, kind=Kind.DEVICE_OOM, peak_bytes=over.peak_bytes)
    if reply.further_error is not None and reply.further_at is not None:
        kind, _ = _judge_error(reply.further_error)
        if kind is Kind.DEVICE_OOM:
            return fitted, FailedSize(batch_size=reply.further_at, kind=kind)
    return fitted, None


def _failure(trial: Trial, budget: Budget, ending: Ending) -> tuple[FailureKind, TrialError] | None:
    """Return why the candidate did not fit; None if it did."""
    reply = ending.reply
    if reply is not None and reply.error is not None:
        kind, error = _judge_error(reply.error)
        return kind, replace(error, message=error.message + _progress(reply)) if error.code == "raised" else error
    if reply is not None and reply.stage is Stage.DONE:
        peak_bytes = reply.peak_bytes or 0
        if isinstance(trial, Climb) or peak_bytes <= budget.budget_bytes:
            return None
        return Kind.DEVICE_OOM, over_headroom_error(peak_bytes, budget)
    if ending.timed_out:
        return Kind.TIMEOUT, TrialError(
            code="timeout",
            message=f"no answer after {ending.duration_s:.0f} s",
            hint="raise trial.timeout if steps of this model really take that long",
        )
    return _judge_silence(ending)


def _progress(reply: Reply) -> str:
    """Return how many steps ran before the user's code raised; empty if none did."""
    if not reply.step_ms or (reply.error is not None and "OomtuneError" in reply.error.bases):
        return ""
    doing = "validation" if reply.stage is Stage.VALIDATE else "training"
    return f" (in {doing}, after {len(reply.step_ms)} steps)"


def over_headroom_error(peak_bytes: int, budget: Budget, allowed_bytes: int | None = None) -> TrialError:
    """Return the error of a run with a peak over the budget, or over `allowed_bytes` if a check allows more."""
    most_bytes = budget.budget_bytes if allowed_bytes is None else allowed_bytes
    peak, most = format_bytes_apart(peak_bytes, most_bytes)
    beyond = "" if most_bytes == budget.budget_bytes else f", and over the {most} that noise explains"
    allowed = format_bytes(budget.budget_bytes) if beyond else most
    message = f"it ran, but its peak of {peak} is over the budget of {allowed} ({budget.origin}){beyond}"
    return TrialError(code="over_headroom", message=message)


def _judge_error(error: RaisedError) -> tuple[FailureKind, TrialError]:
    """Judge an exception by its type, and by its message if several causes share the type."""
    names = {error.type_name.rsplit(".", 1)[-1], *error.bases}
    is_ours = "OomtuneError" in names
    report = TrialError(
        code="loss_not_finite" if "LossNotFinite" in names else "raised",
        message=error.message if is_ours else f"{error.type_name.rsplit('.', 1)[-1]}: {error.message}",
        hint=error.hint,
        traceback=error.traceback,
    )
    if "AllocatorStalled" in names:
        return Kind.DEVICE_OOM, TrialError(code="device_oom", message=error.message, hint=error.hint)
    if "MemoryError" in names:
        return Kind.HOST_OOM, TrialError(code="host_oom", message=report.message, hint=error.hint)
    if "OpError" in names or "JaxRuntimeError" in names or "XlaRuntimeError" in names:
        diagnosis = classify(f"{error.type_name}: {error.message}")
        if diagnosis.kind != "not_oom":
            kind = _OUT_OF_MEMORY[diagnosis.kind]
            return kind, TrialError(code=kind.value, message=_memory_line(error.message), hint=error.hint)
    return Kind.CRASH, report


def _memory_line(message: str) -> str:
    """Return the line that names the tensor. The message may contain a whole graph."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "OOM" in line or "memory" in line), lines[0] if lines else "")


def _judge_silence(ending: Ending) -> tuple[FailureKind, TrialError]:
    """Judge a process that ended without a reply by its signal and the end of its output."""
    how = _how_it_ended(ending.exit_code)
    diagnosis = classify(ending.stderr_tail)
    if diagnosis.kind != "not_oom":
        kind = _OUT_OF_MEMORY[diagnosis.kind]
        return kind, TrialError(code=kind.value, message=f"{how}; its output says: {diagnosis.line}")
    if ending.exit_code == -signal.SIGKILL:
        return Kind.HOST_OOM, TrialError(
            code="host_oom",
            message=f"{how}, most likely by the kernel because the machine ran out of memory",
            hint="lower device.memory_limit, or free memory on the machine",
        )
    return Kind.CRASH, TrialError(
        code="died", message=f"{how} without a reply", traceback=ending.stderr_tail, hint=_signal_hint(ending.exit_code)
    )


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "the trial's process was lost"
    if exit_code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"the trial's process was ended by {names.get(-exit_code, f'signal {-exit_code}')}"
    return f"the trial's process exited with code {exit_code}"


def _signal_hint(exit_code: int | None) -> str:
    if exit_code == -signal.SIGILL:
        return "this CPU lists instructions that it can't run; set ONEDNN_MAX_CPU_ISA=AVX2 and try again"
    if exit_code == 0:
        return "the model's code ended the process; remove sys.exit() or os._exit() from it"
    return ""


def _allocator(reply: Reply) -> AllocatorState | None:
    """Return the allocator's state at the failure, with the size of the request if the error names it."""
    state, error = reply.allocator, reply.error
    if state is None or error is None or "AllocatorStalled" in error.bases:
        return state
    return replace(state, requested_bytes=classify(f"{error.type_name}: {error.message}").bytes_requested)


def _fragmentation_error(state: AllocatorState | None) -> TrialError | None:
    """Return the error that blames fragmentation, with the allocator's figures; None if fragmentation is not the cause.

    Memory is fragmented when enough is free in total but no piece is large enough. On the CPU the trial ends before
    the allocator names the size of the request, so assume the size of the largest tensor in memory.
    """
    if state is None or not _is_fragmented(state):
        return None
    limit, free_share = format_bytes(state.limit_bytes), state.free_bytes / state.limit_bytes
    if state.requested_bytes is None:
        request = f"the model has tensors of {format_bytes(state.largest_held_bytes)}"
    else:
        request = f"the model requested {format_bytes(state.requested_bytes)}"
    on_cpu = "cpu" in state.allocator
    return TrialError(
        code=FRAGMENTATION,
        message=f"fragmentation: {free_share:.0%} of the limit of {limit} is free, in pieces of at most "
        f"{format_bytes(state.largest_free_bytes)}, and {request} ({state.allocator}, "
        f"{format_bytes(state.in_use_bytes)} in use, fragmentation {state.fragmentation:.2f})",
        hint="use a smaller batch; on a GPU, device.allocator: cuda_malloc_async prevents fragmentation"
        if on_cpu
        else "set device.allocator: cuda_malloc_async, which prevents fragmentation, and probe again",
    )


def _is_fragmented(state: AllocatorState) -> bool:
    request_bytes = state.largest_held_bytes if state.requested_bytes is None else state.requested_bytes
    much_is_free = state.free_bytes > _FREE_SHARE * state.limit_bytes
    much_is_used = state.in_use_bytes > _IN_USE_SHARE * state.limit_bytes
    return much_is_free and much_is_used and state.largest_free_bytes < request_bytes <= state.free_bytes


def leak_bytes_per_step(memory_after_step_bytes: Sequence[int], room_bytes: int) -> int:
    """Return by how many bytes memory grows with each step; 0 if it doesn't grow steadily.

    Only the second half of the run counts: in the first half, caches fill and the optimizer creates its slots.
    """
    later = memory_after_step_bytes[len(memory_after_step_bytes) // 2 :]
    if len(later) < _FEWEST_STEPS or not _grows_steadily(later):
        return 0
    slopes = [(after - before) / (j - i) for (i, before), (j, after) in itertools.combinations(enumerate(later), 2)]
    per_step = statistics.median(slopes)
    share_bytes = max(_LEAK_BYTES, _LEAK_SHARE * later[0])
    return int(per_step) if per_step > max(_NOISE_BYTES, min(room_bytes / _STEPS_TO_FULL, share_bytes)) else 0


def _grows_steadily(memory_bytes: Sequence[int]) -> bool:
    changes = [after - before for before, after in itertools.pairwise(memory_bytes)]
    rises = [change for change in changes if change > 0]
    risen, fallen = sum(rises), -sum(change for change in changes if change < 0)
    is_frequent = len(rises) >= _RISING_SHARE * len(changes)
    return is_frequent and fallen <= _FALLING_SHARE * risen and max(rises) <= _JUMP_SHARE * risen


def explain_leak(findings: Sequence[Finding], leak_bytes: int) -> tuple[Finding, ...]:
    """Attribute the leak: to findings of kept tensors, else to a finding of retracing, else to a new finding."""
    held_bytes = sum(finding.bytes_per_step or 0 for finding in findings)
    if held_bytes >= _EXPLAINED_SHARE * leak_bytes:
        return tuple(findings)
    retracing = next((finding for finding in findings if finding.kind == "retrace"), None)
    growth = f"memory grows by {format_bytes(leak_bytes)} a step"
    if retracing is not None:
        grown = replace(retracing, message=f"{retracing.message}; {growth}", bytes_per_step=leak_bytes)
        return tuple(grown if finding is retracing else finding for finding in findings)
    unexplained = Finding(
        kind="leak",
        message=f"{growth}, and oomtune could not find what holds it",
        hint="look for objects that each step creates and keeps: iterators, tables, tapes",
        bytes_per_step=leak_bytes,
    )
    return (*findings, unexplained)
