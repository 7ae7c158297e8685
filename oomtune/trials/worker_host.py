"""Start the worker process, give it work, and clean up after it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from oomtune.domain import RaisedError
from oomtune.errors import DataUnreadable, TensorFlowMissing, TrialCrashed, WorkerBroken

Mode = Literal["fork", "spawn"]
_T = TypeVar("_T")

# Start the worker by name, so that this process imports no TensorFlow. Drop the empty entry of sys.path, because a
# typing.py or keras.py in the user's folder would hide the real module.
_BOOT = "import sys; sys.path[:] = filter(None, sys.path); from oomtune.worker.process.zygote import serve; serve()"
_TAIL_BYTES = 16_384
_LAST_OUTPUT_CHARACTERS = 600
_START_TIMEOUT_S = 180.0
_ANSWER_TIMEOUT_S = 60.0
_EXIT_TIMEOUT_S = 10.0
_NOTE_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How one piece of work ended. A negative exit code is a signal; `so_far` is the worker's last note."""

    reply: bytes
    so_far: bytes
    exit_code: int | None
    output_tail: str
    timed_out: bool
    duration_s: float


def order_document(word: Literal["trial", "describe", "inspect", "scan"], order: Any = None) -> bytes:
    """Return an order as the worker reads it."""
    return json.dumps({"do": word, "order": TypeAdapter(Any).dump_python(order, mode="json")}).encode()


class WorkerHost:
    """A worker process. It runs one piece of work at a time, each in its own process group.

    The constructor starts the process and returns at once, so that the worker imports TensorFlow while the caller does
    something else.
    """

    def __init__(self, mode: Mode = "fork", environment: dict[str, str] | None = None) -> None:
        self.mode = mode
        self.environment = dict(environment or {})
        self._inbox = b""
        self._is_ready = False
        self._is_closed = False
        self._fences_writes = False
        self._child: int | None = None
        self._control, worker_end = socket.socketpair()
        try:
            self.root = Path(tempfile.mkdtemp(prefix="oomtune-"))
            log = (self.root / "worker.txt").open("wb")
        except OSError as error:
            raise WorkerBroken(
                f"no temporary folder can be written: {error.strerror}", hint="free disk space, or set TMPDIR"
            ) from None
        with worker_end, log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, mode, str(worker_end.fileno()), str(self.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(worker_end.fileno(),),
                env={**os.environ, **self.environment},
                # Ctrl-C in the terminal must reach only the command line, which then ends the worker.
                start_new_session=True,
            )

    def ask(
        self,
        word: Literal["describe", "inspect", "scan"],
        order: Any,
        answer: type[_T],
        *,
        timeout_s: float,
        watch: Callable[[bytes], None] | None = None,
    ) -> _T:
        """Run work other than a trial, and return the worker's answer.

        Raise an exception of the worker as `DataUnreadable` or `TrialCrashed`. `watch` receives the worker's notes.
        """
        worker_exit = self.call(order_document(word, order), timeout_s=timeout_s, watch=watch)
        document = _parse(worker_exit.reply)
        if document is None:
            last_output = worker_exit.output_tail[-_LAST_OUTPUT_CHARACTERS:].strip()
            how = f"did not answer within {timeout_s:.0f} s" if worker_exit.timed_out else "ended without an answer"
            raise WorkerBroken(f"the worker ({word}) {how}", hint=last_output or "try: oomtune doctor")
        if document["error"] is not None:
            raise _error_from_worker(TypeAdapter(RaisedError).validate_python(document["error"]))
        return TypeAdapter(answer).validate_python(document["value"])

    def call(self, order: bytes, *, timeout_s: float, watch: Callable[[bytes], None] | None = None) -> Exit:
        """Run one piece of work and return how it ended. `watch` receives the worker's notes meanwhile."""
        self.wait_until_ready()
        scratch = self._scratch(order)
        try:
            return self._call(scratch, timeout_s, watch or (lambda _note: None))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _scratch(self, order: bytes) -> Path:
        """Make a folder for one piece of work, with the order in it."""
        try:
            scratch = Path(tempfile.mkdtemp(dir=self.root))
            (scratch / "order.json").write_bytes(order)
        except OSError as error:
            raise WorkerBroken(
                f"the temporary folder {self.root} can't be written: {error.strerror}",
                hint="free disk space, or set TMPDIR to a folder that has some",
            ) from None
        return scratch

    def _call(self, scratch: Path, timeout_s: float, watch: Callable[[bytes], None]) -> Exit:
        began = time.monotonic()
        reply_out, reply_in = os.pipe()
        with os.fdopen(reply_out, "rb", buffering=0) as pipe:
            try:
                socket.send_fds(self._control, [json.dumps({"scratch": str(scratch)}).encode() + b"\n"], [reply_in])
            except OSError:
                raise self._worker_gone() from None
            finally:
                os.close(reply_in)
            self._child = int(self._message(time.monotonic() + _ANSWER_TIMEOUT_S)["started"])
            note = scratch / "so_far.json"
            reply, timed_out = self._read_reply(pipe.fileno(), began + timeout_s, lambda: watch(_contents(note)))
            if timed_out:
                self._kill_child()
            exit_code = self._await_exit()
        return Exit(
            reply=reply,
            so_far=_contents(note),
            exit_code=exit_code,
            output_tail=_tail(scratch / "output.txt"),
            timed_out=timed_out,
            duration_s=time.monotonic() - began,
        )

    def _read_reply(self, descriptor: int, deadline: float, look: Callable[[], None]) -> tuple[bytes, bool]:
        """Return the reply, read until the pipe closes, and whether the deadline came first."""
        chunks: list[bytes] = []
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([descriptor], [], [], min(left_s, _NOTE_INTERVAL_S))
            look()
            if not readable and left_s == 0.0:
                return b"", True
            if not readable:
                continue
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return b"".join(chunks), False
            chunks.append(chunk)

    def _await_exit(self) -> int:
        """Return the exit code of the child. Kill a child that closed its pipe but does not exit."""
        if not self._is_readable(time.monotonic() + _EXIT_TIMEOUT_S):
            self._kill_child()
        exit_code = int(self._message(time.monotonic() + _ANSWER_TIMEOUT_S)["exited"])
        self._child = None
        return exit_code

    def _kill_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)

    def wait_until_ready(self) -> None:
        """Wait until the worker has imported TensorFlow."""
        if self._is_ready:
            return
        message = self._message(time.monotonic() + _START_TIMEOUT_S)
        if "broken" in message:
            raise TensorFlowMissing(
                f"TensorFlow can't be imported: {message['broken']}",
                hint="pip install tensorflow, then: oomtune doctor",
            )
        self._fences_writes = message["fences_writes"]
        self._is_ready = True

    def fences_writes(self) -> bool:
        """Return True if the kernel can keep the user's code from writing outside a trial's folder."""
        self.wait_until_ready()
        return self._fences_writes

    def _is_readable(self, deadline: float) -> bool:
        if b"\n" in self._inbox:
            return True
        readable, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
        return bool(readable)

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._inbox:
            if not self._is_readable(deadline):
                raise WorkerBroken("the worker process does not answer", hint="try again; oomtune doctor may show more")
            try:
                data = self._control.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise self._worker_gone()
            self._inbox += data
        line, self._inbox = self._inbox.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _worker_gone(self) -> WorkerBroken:
        last_output = _tail(self.root / "worker.txt")[-_LAST_OUTPUT_CHARACTERS:].strip()
        return WorkerBroken(
            "the worker process ended by itself", hint=last_output or "run the same command again to continue"
        )

    def close(self) -> None:
        """End the worker and everything it started. Calling it twice is safe."""
        if self._is_closed:
            return
        self._is_closed = True
        self._kill_child()
        self._control.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._is_ready:
                os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self.root, ignore_errors=True)


def _parse(reply: bytes) -> dict[str, Any] | None:
    """Return the reply; None if the worker ended before the reply was complete."""
    try:
        document: dict[str, Any] = json.loads(reply)
    except ValueError:
        return None
    return document


def _error_from_worker(error: RaisedError) -> DataUnreadable | TrialCrashed:
    is_ours = "OomtuneError" in error.bases
    message = error.message if is_ours else f"{error.type_name.rsplit('.', 1)[-1]}: {error.message}"
    error_class = DataUnreadable if "DataUnreadable" in error.bases else TrialCrashed
    return error_class(message, hint=error.hint, traceback=error.traceback)


def _contents(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _tail(path: Path) -> str:
    return _contents(path)[-_TAIL_BYTES:].decode("utf-8", errors="replace")
