"""The worker process from outside: starting it, handing it work, and making sure that nothing of it is left."""

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
from typing import Any, Literal

from oomtune.errors import TensorFlowMissing, WorkerBroken

Mode = Literal["fork", "spawn"]

# Started by name, so that nothing here imports TensorFlow; without the user's folder on the path, where a file called
# typing.py or keras.py would be imported instead of the real one.
_BOOT = "import sys; sys.path[:] = filter(None, sys.path); from oomtune.worker.process.zygote import serve; serve()"
_TAIL_BYTES = 16_384
_START_S = 180.0
_ANSWER_S = 60.0
_LAST_WORDS_S = 10.0
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """What the outside saw of one piece of work. A negative exit code is a signal."""

    reply: bytes
    so_far: bytes
    exit_code: int | None
    output_tail: str
    timed_out: bool
    duration_s: float


class WorkerHost:
    """A worker process and the pieces of work it runs, one at a time, each in a process group of its own.

    Creating it starts the process and returns at once, so that TensorFlow is imported while the caller does
    something else.
    """

    def __init__(self, mode: Mode = "fork", environment: dict[str, str] | None = None) -> None:
        self.mode = mode
        self.environment = dict(environment or {})
        self._inbox = b""
        self._ready = False
        self._fences_writes = False
        self._closed = False
        self._child: int | None = None
        self._control, theirs = socket.socketpair()
        try:
            self.root = Path(tempfile.mkdtemp(prefix="oomtune-"))
            log = (self.root / "worker.txt").open("wb")
        except OSError as error:
            raise WorkerBroken(
                f"no temporary folder can be written: {error.strerror}", hint="free disk space, or set TMPDIR"
            ) from None
        with theirs, log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, mode, str(theirs.fileno()), str(self.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **self.environment},
                # Ctrl-C in the terminal is for the command line, which ends the worker in its own good order.
                start_new_session=True,
            )

    def call(self, order: bytes, *, timeout_s: float, watch: Callable[[bytes], None] | None = None) -> Exit:
        """Run one piece of work and wait for its end, however it ends; `watch` is shown what it notes meanwhile."""
        self.wait_until_ready()
        scratch = self._scratch(order)
        try:
            return self._call(scratch, timeout_s, watch or _nobody)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _scratch(self, order: bytes) -> Path:
        """A folder of the trial's own with its order in it."""
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
            self._child = int(self._message(time.monotonic() + _ANSWER_S)["started"])
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
        """All that came on the reply pipe until it closed, and whether the deadline came first."""
        chunks: list[bytes] = []
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([descriptor], [], [], min(left_s, _LOOK_EVERY_S))
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
        """The exit code of a child whose pipe has closed; a child that closed it and lives on is ended."""
        if not self._readable(time.monotonic() + _LAST_WORDS_S):
            self._kill_child()
        exit_code = int(self._message(time.monotonic() + _ANSWER_S)["exited"])
        self._child = None
        return exit_code

    def _kill_child(self) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)

    def wait_until_ready(self) -> None:
        """Wait until TensorFlow is imported; at once when it is."""
        if self._ready:
            return
        message = self._message(time.monotonic() + _START_S)
        if "broken" in message:
            raise TensorFlowMissing(
                f"TensorFlow can't be imported: {message['broken']}",
                hint="pip install tensorflow, then: oomtune doctor",
            )
        self._fences_writes = message["fences_writes"]
        self._ready = True

    def fences_writes(self) -> bool:
        """Can the worker's kernel deny the user's code to write outside a trial's folder?"""
        self.wait_until_ready()
        return self._fences_writes

    def _readable(self, deadline: float) -> bool:
        if b"\n" in self._inbox:
            return True
        readable, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
        return bool(readable)

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._inbox:
            if not self._readable(deadline):
                raise WorkerBroken("the worker process does not answer", hint="try again; oomtune doctor may say more")
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
        last_words = _tail(self.root / "worker.txt")[-600:].strip()
        return WorkerBroken(
            "the worker process ended by itself", hint=last_words or "the same command goes on where it was"
        )

    def close(self) -> None:
        """End the worker and all it started. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._kill_child()
        self._control.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._ready:
                os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self.root, ignore_errors=True)


def _nobody(_note: bytes) -> None:
    """Watches nothing."""


def _contents(path: Path) -> bytes:
    """What a worker left in this file; nothing, if it did not come to that."""
    return path.read_bytes() if path.exists() else b""


def _tail(path: Path) -> str:
    return _contents(path)[-_TAIL_BYTES:].decode("utf-8", errors="replace")
