"""What an ending means: the one place that decides.

By exception type first, then by the structure of the message (status, allocator, device), then by exit signal and the
tail of stderr. No reply is never a success, and a failure that is not memory is never "too big".
"""

from __future__ import annotations

import signal
import statistics
from dataclasses import dataclass, replace
from typing import Any

from oomtune.diagnosis import Diagnosis, classify
from oomtune.domain import (
    AllocatorState,
    Budget,
    Climbed,
    Failed,
    FailedSize,
    FailureKind,
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
from oomtune.trials import fragmentation
from oomtune.trials.leaks import explained, leak
from oomtune.units import format_bytes, format_bytes_apart

_OUT_OF_MEMORY: dict[str, FailureKind] = {"device_oom": Kind.DEVICE_OOM, "host_oom": Kind.HOST_OOM}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """All that the outside saw of a trial. A negative exit code is the signal that ended it.

    `so_far` is what the worker had noted before it fell silent: it tells how far the trial came. It proves nothing
    about its end, unless it says that every step of the candidate ran; what came after that were larger sizes.
    """

    reply: Reply | None
    exit_code: int | None
    so_far: Reply | None = None
    stderr_tail: str = ""
    timed_out: bool = False
    duration_s: float = 0.0


def decide(trial: Trial, budget: Budget, ending: Ending) -> Outcome:
    """How the trial ended, in the closed set of words that the search and the user know."""
    ending = _with_what_is_proved(ending)
    failure = _failure(trial, budget, ending)
    reply = ending.reply or ending.so_far or Reply(stage=Stage.BUILD)
    points = tuple(point for point in reply.points if point.peak_bytes <= budget.budget_bytes)
    over = [point.batch_size for point in reply.points if point.peak_bytes > budget.budget_bytes]
    if over and failure is None:
        failure = Kind.DEVICE_OOM, over_headroom_error(max(point.peak_bytes for point in reply.points), budget)
    peak_bytes = reply.peak_bytes or 0
    leaked = 0
    if trial.purpose is Purpose.CONFIRM:
        leaked = leak(reply.memory_after_step_bytes, budget.limit_bytes - peak_bytes)
    shown: dict[str, Any] = {
        # Rounded here, so that everything that shows a time shows the same digits.
        "step_ms": round(statistics.median(reply.step_ms), 3) if reply.step_ms else None,
        "steps_run": len(reply.step_ms),
        "leak_bytes_per_step": leaked,
        "findings": explained(reply.findings, leaked),
        "jit_compile": reply.jit_compile,
        "parameters": reply.parameters,
        "validated": reply.validated,
        "duration_s": round(ending.duration_s, 3),
    }
    if failure is not None:
        kind, error = failure
        allocator = _allocator(reply) if kind is Kind.DEVICE_OOM else None
        if allocator is not None and fragmentation.is_fragmented(allocator):
            error = fragmentation.error_of(allocator)
        return Failed(
            kind=kind,
            stage=reply.stage,
            error=error,
            batch_size=min(over, default=reply.batch_size or trial.candidate.batch_size),
            peak_bytes=reply.peak_bytes,
            points=points,
            allocator=allocator,
            **shown,
        )
    if points:
        return Climbed(peak_bytes=peak_bytes, points=points, **shown)
    further, failed = _further(reply, budget)
    return Fitted(peak_bytes=peak_bytes, anatomy=reply.anatomy, further=further, further_failed=failed, **shown)


def _with_what_is_proved(ending: Ending) -> Ending:
    so_far = ending.so_far
    proved = ending.reply is None and so_far is not None and so_far.stage is Stage.DONE
    return replace(ending, reply=so_far, timed_out=False) if proved else ending


def _further(reply: Reply, budget: Budget) -> tuple[tuple[Point, ...], FailedSize | None]:
    """The larger sizes that fitted after the candidate, and the one that did not. What is no matter of memory shows
    when that size is run for itself."""
    fitted = tuple(point for point in reply.further if point.peak_bytes <= budget.budget_bytes)
    for point in reply.further:
        if point.peak_bytes > budget.budget_bytes:
            return fitted, FailedSize(batch_size=point.batch_size, kind=Kind.DEVICE_OOM, peak_bytes=point.peak_bytes)
    if reply.further_error is not None and reply.further_at is not None:
        kind, _ = _raised(reply.further_error)
        if kind is Kind.DEVICE_OOM:
            return fitted, FailedSize(batch_size=reply.further_at, kind=kind)
    return fitted, None


def _allocator(reply: Reply) -> AllocatorState | None:
    """Its state at the failure, with what was asked for if the error says so."""
    state, error = reply.allocator, reply.error
    if state is None or error is None or "AllocatorStalled" in error.bases:
        return state
    return replace(state, requested_bytes=classify(f"{error.type_name}: {error.message}").bytes_requested)


def _failure(trial: Trial, budget: Budget, ending: Ending) -> tuple[FailureKind, TrialError] | None:
    reply = ending.reply
    if reply is not None and reply.error is not None:
        kind, error = _raised(reply.error)
        return kind, replace(error, message=f"{error.message}{_when(reply)}") if error.code == "raised" else error
    if reply is not None and reply.stage is Stage.DONE:
        peak = reply.peak_bytes or 0
        over = trial.purpose is not Purpose.CALIBRATE and peak > budget.budget_bytes
        return (Kind.DEVICE_OOM, over_headroom_error(peak, budget)) if over else None
    if ending.timed_out:
        return Kind.TIMEOUT, TrialError(
            code="timeout",
            message=f"no answer after {ending.duration_s:.0f} s",
            hint="raise trial.timeout if steps of this model really take that long",
        )
    return _silent(ending)


def _when(reply: Reply) -> str:
    """How far training had come when the user's code raised; nothing when it had not begun."""
    if not reply.step_ms or "OomtuneError" in (reply.error.bases if reply.error else ()):
        return ""
    doing = "validation" if reply.stage is Stage.VALIDATE else "training"
    return f" (in {doing}, after {len(reply.step_ms)} steps)"


def over_headroom_error(peak_bytes: int, budget: Budget, allowed_bytes: int | None = None) -> TrialError:
    """Return the error of a run that fitted the limit but not the budget. A check may allow more than the budget."""
    most_bytes = budget.budget_bytes if allowed_bytes is None else allowed_bytes
    peak, most = format_bytes_apart(peak_bytes, most_bytes)
    beyond = "" if most_bytes == budget.budget_bytes else f", and over the {most} that noise explains"
    allowed = format_bytes(budget.budget_bytes) if beyond else most
    message = f"it ran, but its peak of {peak} is over the budget of {allowed} ({budget.origin}){beyond}"
    return TrialError(code="over_headroom", message=message)


def _raised(error: RaisedError) -> tuple[FailureKind, TrialError]:
    """An exception that the worker caught: its type decides where it can, its message where the type is shared."""
    names = {error.type_name.rsplit(".", 1)[-1], *error.bases}
    ours = "OomtuneError" in names
    report = TrialError(
        code="loss_not_finite" if "LossNotFinite" in names else "raised",
        message=error.message if ours else f"{error.type_name.rsplit('.', 1)[-1]}: {error.message}",
        hint=error.hint,
        traceback=error.traceback,
    )
    if "AllocatorStalled" in names:
        return Kind.DEVICE_OOM, _with_code(report, Kind.DEVICE_OOM, message=error.message)
    if "MemoryError" in names:
        return Kind.HOST_OOM, _with_code(report, Kind.HOST_OOM)
    if "OpError" in names or "JaxRuntimeError" in names or "XlaRuntimeError" in names:
        diagnosis = classify(f"{error.type_name}: {error.message}")
        if diagnosis.kind != "not_oom":
            kind = _OUT_OF_MEMORY[diagnosis.kind]
            return kind, _with_code(report, kind, message=_first_line(error.message))
    return Kind.CRASH, report


def _with_code(error: TrialError, kind: Kind, *, message: str | None = None) -> TrialError:
    return TrialError(code=kind.value, message=message or error.message, hint=error.hint)


def _first_line(message: str) -> str:
    """The line that names the tensor, out of a message that may hold a graph's worth of them."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "OOM" in line or "memory" in line), lines[0] if lines else "")


def _silent(ending: Ending) -> tuple[FailureKind, TrialError]:
    """The process ended without a reply: its signal and its last words are all there is."""
    how = _how_it_ended(ending.exit_code)
    diagnosis: Diagnosis = classify(ending.stderr_tail)
    if diagnosis.kind != "not_oom":
        kind = _OUT_OF_MEMORY[diagnosis.kind]
        return kind, TrialError(code=kind.value, message=f"{how}; its last words: {diagnosis.line}")
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
        return "this CPU says it has instructions that it can't run; set ONEDNN_MAX_CPU_ISA=AVX2 and try again"
    if exit_code == 0:
        return "the model's code ended the process; remove sys.exit() or os._exit() from it"
    return ""
