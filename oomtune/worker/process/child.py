"""One trial, from the order to the reply."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras  # noqa: F401
import tensorflow as tf  # noqa: F401
from pydantic import TypeAdapter

from oomtune.domain import (
    Climb,
    InspectOrder,
    PythonData,
    RaisedError,
    Reply,
    Scan,
    ScanOrder,
    Script,
    TrainStep,
    WorkOrder,
    runs_users_code,
)
from oomtune.errors import OomtuneError
from oomtune.worker.build import inspection
from oomtune.worker.data import worst_samples
from oomtune.worker.data.scan import scan
from oomtune.worker.process import apart, describe, device
from oomtune.worker.process import error_reasons as reasons
from oomtune.worker.process import stall_watch as stall
from oomtune.worker.process.lifeline import die_with_parent
from oomtune.worker.process.progress import Progress
from oomtune.worker.sandbox import guard
from oomtune.worker.train import fit as training
from oomtune.worker.train import own_loop as loop
from oomtune.worker.train import script
from oomtune.worker.watch import allocator_state as allocator
from oomtune.worker.watch import user_frames as users

_ORDER = TypeAdapter(WorkOrder)
_REPLY = TypeAdapter(Reply)


class _Mouth:
    """The reply pipe. Whoever speaks first, the trial or the watchdog, speaks alone, and the process ends."""

    def __init__(self, reply_fd: int) -> None:
        self.reply_fd = reply_fd
        self.lock = threading.Lock()

    def say(self, document: bytes) -> NoReturn:
        # Never released: after the reply nothing else may be said. A clean exit can't be relied on after an
        # out-of-memory error (freed twice, XLA aborts), so the process leaves without one.
        self.lock.acquire()
        with os.fdopen(self.reply_fd, "wb") as pipe:
            pipe.write(document)
        os._exit(0)


def run(*, scratch: str, reply_fd: int, parent_pid: int) -> NoReturn:
    """Carry out the order in the scratch folder, reply, and leave."""
    die_with_parent(parent_pid)
    # What TensorFlow leaves in the temporary folder it removes at a clean exit, which this process will not have.
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    mouth = _Mouth(reply_fd)
    told = json.loads((Path(scratch) / "order.json").read_bytes())
    if told["do"] != "trial":
        _answer(told["do"], told["order"], scratch, mouth)
    order = dataclasses.replace(_ORDER.validate_python(told["order"]), scratch=scratch)
    progress = Progress(note=lambda so_far: _note(scratch, so_far))
    if isinstance(order.trial, Climb) and order.model.trains_itself:
        error = apart.climb(order, order.trial, progress, _in_own_process)
        mouth.say(_document(progress.reply(error)))
    _perform(order, progress, mouth)


def _answer(word: str, order: Any, scratch: str, mouth: _Mouth) -> NoReturn:
    """Do what is not a trial, and say what came of it."""
    value: Any = None
    error: RaisedError | None = None
    try:
        match word:
            case "describe":
                value = describe.describe()
            case "inspect":
                guard.keep_writes_in(Path(scratch))
                value = inspection.inspect(TypeAdapter(InspectOrder).validate_python(order))
            case _:
                value = _scanned(TypeAdapter(ScanOrder).validate_python(order), Path(scratch))
    except BaseException as caught:  # noqa: BLE001 - whatever the user's code raises has to cross the pipe
        error = raised(caught)
    mouth.say(json.dumps(TypeAdapter(Any).dump_python({"value": value, "error": error}, mode="json")).encode())


def _scanned(order: ScanOrder, scratch: Path) -> Scan:
    note, rows = scratch / "so_far.json", Path(order.rows_path)
    if isinstance(order.dataset, PythonData):
        guard.keep_writes_in(scratch, rows.parent)

    def tell(samples: int, share: float) -> None:
        draft = note.with_suffix(".draft")
        draft.write_text(json.dumps({"samples": samples, "share": share}))
        draft.replace(note)

    found, samples = scan(order.dataset, order.folder, tell)
    worst_samples.save(samples, found.sequences, rows)
    return dataclasses.replace(found, rows_path=order.rows_path)


def _perform(order: WorkOrder, progress: Progress, mouth: _Mouth) -> NoReturn:
    def reply(error: BaseException | None = None) -> NoReturn:
        progress.allocator = None if error is None else allocator.at_failure(order)
        mouth.say(_document(progress.reply(None if error is None else raised(error))))

    try:
        device.prepare(order)
        stall.watch(order, on_stall=reply)
        if runs_users_code(order.model, order.dataset):
            guard.keep_writes_in(Path(order.scratch))
        match order.model:
            case Script():
                script.run(order, progress, reply)
            case TrainStep():
                loop.run(order, progress)
            case _:
                training.run(order, progress)
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises has to cross the pipe
        reply(error)
    reply()


def _in_own_process(order: WorkOrder) -> Reply:
    """The reply of a process forked for this order alone. If it ends without one, this process ends as it did."""
    reply_out, reply_in = os.pipe()
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reply_out)
        die_with_parent(parent_pid)
        _perform(order, Progress(note=lambda _: None), _Mouth(reply_in))
    os.close(reply_in)
    document = _read_until_exit(reply_out, pid)
    _, status = os.waitpid(pid, 0)
    if not document:
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            os.kill(os.getpid(), -code)
        os._exit(code)
    return _REPLY.validate_json(document)


def _read_until_exit(descriptor: int, pid: int) -> bytes:
    """All that the process says before it ends. What it started may hold the pipe open for longer."""
    chunks: list[bytes] = []
    with os.fdopen(descriptor, "rb", buffering=0):
        while True:
            readable, _, _ = select.select([descriptor], [], [], 0.1)
            if not readable and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return b"".join(chunks)
            chunk = os.read(descriptor, 65536) if readable else b"-"
            if readable and not chunk:
                return b"".join(chunks)
            if readable:
                chunks.append(chunk)


def _document(reply: Reply) -> bytes:
    """The reply as it goes through the pipe. Names of files in it need not be text, and JSON has to be."""
    return json.dumps(_REPLY.dump_python(reply, mode="json"), ensure_ascii=False).encode(errors="replace")


def _note(scratch: str, so_far: Reply) -> None:
    """Keep what is known on disk, for the case that this process is ended before it can reply."""
    draft = Path(scratch) / "so_far.draft"
    draft.write_bytes(_document(so_far))
    draft.replace(Path(scratch) / "so_far.json")


def raised(error: BaseException) -> RaisedError:
    """The exception in a form that needs neither its class nor its process."""
    kind = type(error)
    ours = isinstance(error, OomtuneError)
    return RaisedError(
        type_name=f"{kind.__module__}.{kind.__qualname__}",
        bases=tuple(base.__name__ for base in kind.__mro__),
        message=error.message if isinstance(error, OomtuneError) else reasons.reason(error),
        traceback=users_traceback((error.__cause__ or error) if ours else error),
        hint=error.hint if isinstance(error, OomtuneError) else "",
    )


def users_traceback(error: BaseException) -> str:
    """The traceback from the first line of the user's own code on; empty when none of it is theirs. Where TensorFlow
    has put frames into its message, theirs are those of it that count."""
    told = traceback.TracebackException.from_exception(error)
    theirs = [index for index, frame in enumerate(told.stack) if users.is_users(frame.filename)]
    message, reason = str(error), reasons.reason(error)
    inside = reasons.users_frames(message) if reason != message else ""
    if inside:
        return f"Traceback (most recent call last):\n{inside}{type(error).__name__}: {reason}\n"
    if not theirs:
        return ""
    from_there = [frame for frame in told.stack[theirs[0] :] if not users.is_ours(frame.filename)]
    told.stack = traceback.StackSummary.from_list(from_there)
    formatted = "".join(told.format(chain=False))
    return formatted.replace(message, reason) if message else formatted


def main() -> None:
    """The whole of a process that was started fresh for one trial."""
    run(scratch=sys.argv[1], reply_fd=int(sys.argv[2]), parent_pid=os.getppid())
