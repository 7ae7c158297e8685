"""Runs one order, from reading it to sending the reply."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras  # noqa: F401
import tensorflow as tf  # noqa: F401
from pydantic import TypeAdapter

from oomtune.domain import (
    Climb,
    InspectOrder,
    Point,
    PythonData,
    RaisedError,
    Reply,
    Scan,
    ScanOrder,
    Script,
    Stage,
    TrainStep,
    WorkOrder,
    runs_users_code,
)
from oomtune.search.climb import climb
from oomtune.worker.build import inspection
from oomtune.worker.data import worst_samples
from oomtune.worker.data.scan import scan
from oomtune.worker.process import device, stall_watch
from oomtune.worker.process.exceptions import to_raised_error
from oomtune.worker.process.lifeline import die_with_parent
from oomtune.worker.process.progress import Progress
from oomtune.worker.sandbox.overlay import confine_writes
from oomtune.worker.train import fit, own_loop, script

_ORDER = TypeAdapter(WorkOrder)
_REPLY = TypeAdapter(Reply)


class _ReplyPipe:
    """The pipe to the parent. The first thread to send, the trial's or the stall watch's, ends the process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.lock = threading.Lock()

    def send_and_exit(self, document: bytes) -> NoReturn:
        # Never released, because nothing may follow the reply. The process skips a clean exit, which can fail after
        # an out-of-memory error: TensorFlow frees memory twice, and XLA aborts.
        self.lock.acquire()
        with os.fdopen(self.descriptor, "wb") as pipe:
            pipe.write(document)
        os._exit(0)


def run(*, scratch: str, reply_fd: int, parent_pid: int) -> NoReturn:
    """Carry out the order in the scratch folder, reply, and exit."""
    die_with_parent(parent_pid)
    # TensorFlow removes its temporary files only at a clean exit, which this process skips.
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    pipe = _ReplyPipe(reply_fd)
    document = json.loads((Path(scratch) / "order.json").read_bytes())
    if document["do"] != "trial":
        _send_result(lambda: _look_up(document["do"], document["order"], Path(scratch)), pipe)
    order = dataclasses.replace(_ORDER.validate_python(document["order"]), scratch=scratch)
    progress = Progress(save=lambda reply: _replace_file(Path(scratch) / "so_far.json", _encode(reply)))
    if isinstance(order.trial, Climb) and order.model.trains_itself:
        pipe.send_and_exit(_encode(progress.reply(_climb_in_forks(order, order.trial, progress))))
    _run_trial(order, progress, pipe)


def _send_result(look_up: Callable[[], Any], pipe: _ReplyPipe) -> NoReturn:
    """Send the return value of `look_up`, or the error it raises."""
    value: Any = None
    error: RaisedError | None = None
    try:
        value = look_up()
    except BaseException as raised:  # noqa: BLE001 - whatever the user's code raises has to cross the pipe
        error = to_raised_error(raised)
    document = TypeAdapter(Any).dump_python({"value": value, "error": error}, mode="json")
    pipe.send_and_exit(json.dumps(document).encode())


def _look_up(subject: str, order: Any, scratch: Path) -> Any:
    match subject:
        case "describe":
            return device.describe_machine()
        case "inspect":
            confine_writes(scratch)
            return inspection.inspect(TypeAdapter(InspectOrder).validate_python(order))
        case _:
            return _scan(TypeAdapter(ScanOrder).validate_python(order), scratch)


def _scan(order: ScanOrder, scratch: Path) -> Scan:
    rows_path = Path(order.rows_path)
    if isinstance(order.dataset, PythonData):
        confine_writes(scratch, rows_path.parent)

    def save_progress(samples: int, share: float) -> None:
        _replace_file(scratch / "so_far.json", json.dumps({"samples": samples, "share": share}).encode())

    result, samples = scan(order.dataset, order.folder, save_progress)
    worst_samples.save(samples, result.sequences, rows_path)
    return dataclasses.replace(result, rows_path=order.rows_path)


def _run_trial(order: WorkOrder, progress: Progress, pipe: _ReplyPipe) -> NoReturn:
    def reply(error: BaseException | None = None) -> NoReturn:
        progress.allocator = None if error is None else device.allocator_at_failure(order)
        pipe.send_and_exit(_encode(progress.reply(None if error is None else to_raised_error(error))))

    try:
        device.set_up(order)
        stall_watch.start(order, on_stall=reply)
        if runs_users_code(order.model, order.dataset):
            confine_writes(Path(order.scratch))
        match order.model:
            case Script() as source:
                script.run(order, source, progress, reply)
            case TrainStep() as source:
                own_loop.run(order, source, progress)
            case _:
                fit.run(order, progress)
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises has to cross the pipe
        reply(error)
    reply()


def _climb_in_forks(order: WorkOrder, trial: Climb, progress: Progress) -> RaisedError | None:
    """Climb with one process per size, because the user's own training can't start twice in one process.

    Returns the error that ended the climb, if one did.
    """
    error: RaisedError | None = None

    def run(size: int) -> Point | None:
        nonlocal error
        progress.batch_size = size
        progress.save(progress.reply())
        reply = _run_in_fork(dataclasses.replace(order, trial=dataclasses.replace(trial, sizes=(size,))))
        progress.stage = reply.stage
        progress.allocator = reply.allocator
        error = reply.error
        if error is not None:
            return None
        progress.peak_bytes = reply.peak_bytes or 0
        progress.step_ms.extend(reply.step_ms)
        step_ms = min(reply.step_ms, default=0.0)
        progress.points.append(Point(batch_size=size, peak_bytes=progress.peak_bytes, step_ms=step_ms))
        return progress.points[-1]

    climb(trial.sizes, run, budget_bytes=order.budget.budget_bytes, every=trial.every_size)
    if error is None:
        progress.stage = Stage.DONE
    return error


def _run_in_fork(order: WorkOrder) -> Reply:
    """Run the order in a fork and return its reply. If the fork ends without one, end this process the same way."""
    read_end, write_end = os.pipe()
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        die_with_parent(parent_pid)
        _run_trial(order, Progress(save=lambda _: None), _ReplyPipe(write_end))
    os.close(write_end)
    document = _read_until_exit(read_end, pid)
    _, status = os.waitpid(pid, 0)
    if not document:
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)
    return _REPLY.validate_json(document)


def _read_until_exit(descriptor: int, pid: int) -> bytes:
    """Read the pipe until it closes or the process ends. Children of the process may hold the pipe open longer."""
    chunks: list[bytes] = []
    with os.fdopen(descriptor, "rb", buffering=0):
        while True:
            readable, _, _ = select.select([descriptor], [], [], 0.1)
            if readable:
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    return b"".join(chunks)
                chunks.append(chunk)
            elif os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return b"".join(chunks)


def _encode(reply: Reply) -> bytes:
    """Return the reply as JSON. Replace undecodable bytes in file names, because JSON must be valid text."""
    return json.dumps(_REPLY.dump_python(reply, mode="json"), ensure_ascii=False).encode(errors="replace")


def _replace_file(path: Path, content: bytes) -> None:
    """Write the file atomically: a reader never sees half of it."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    draft.replace(path)


def main() -> None:
    """Run one order in a freshly started interpreter."""
    run(scratch=sys.argv[1], reply_fd=int(sys.argv[2]), parent_pid=os.getppid())
