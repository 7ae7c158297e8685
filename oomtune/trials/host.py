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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from oomtune.errors import TensorFlowMissing, WorkerBroken

Mode = Literal["fork", "spawn"]

_TAIL_BYTES = 16_384
_START_S = 180.0
_ANSWER_S = 60.0
_LAST_WORDS_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """What the outside saw of one piece of work. A negative exit code is a signal."""

    reply: bytes
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
        self.root = Path(tempfile.mkdtemp(prefix="oomtune-"))
        self._inbox = b""
        self._ready = False
        self._closed = False
        self._child: int | None = None
        self._control, theirs = socket.socketpair()
        with theirs, (self.root / "worker.txt").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "oomtune.worker", mode, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **self.environment},
                # Ctrl-C in the terminal is for the command line, which ends the worker in its own good order.
                start_new_session=True,
            )

    def call(self, order: bytes, *, timeout_s: float) -> Exit:
        """Run one piece of work and wait for its end, however it ends."""
        self._wait_until_ready()
        scratch = self._scratch(order)
        try:
            return self._call(scratch, timeout_s)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _scratch(self, order: bytes) -> Path:
        """A folder of the trial's own with its order in it."""
        try:
            scratch = Path(tempfile.mkdtemp(dir=self.root))
            (scratch / "order.json").write_bytes(order.replace(b"@scratch@", str(scratch).encode()))
        except OSError as error:
            raise WorkerBroken(
                f"the temporary folder {self.root} can't be written: {error.strerror}",
                hint="free disk space, or set TMPDIR to a folder that has some",
            ) from None
        return scratch

    def _call(self, scratch: Path, timeout_s: float) -> Exit:
        began = time.monotonic()
        reply_out, reply_in = os.pipe()
        with os.fdopen(reply_out, "rb", buffering=0) as pipe:
            socket.send_fds(self._control, [json.dumps({"scratch": str(scratch)}).encode() + b"\n"], [reply_in])
            os.close(reply_in)
            self._child = int(self._message(time.monotonic() + _ANSWER_S)["started"])
            reply, timed_out = self._read_reply(pipe.fileno(), began + timeout_s)
            if timed_out:
                self._kill_child()
            exit_code = self._await_exit()
        output = scratch / "output.txt"
        return Exit(
            reply=reply,
            exit_code=exit_code,
            output_tail=_tail(output) if output.exists() else "",
            timed_out=timed_out,
            duration_s=time.monotonic() - began,
        )

    def _read_reply(self, descriptor: int, deadline: float) -> tuple[bytes, bool]:
        """All that came on the reply pipe until it closed, and whether the deadline came first."""
        chunks: list[bytes] = []
        while True:
            readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return b"", True
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

    def _wait_until_ready(self) -> None:
        if self._ready:
            return
        message = self._message(time.monotonic() + _START_S)
        if "broken" in message:
            raise TensorFlowMissing(
                f"TensorFlow can't be imported: {message['broken']}",
                hint="pip install tensorflow, then: oomtune doctor",
            )
        self._ready = True

    def _readable(self, deadline: float) -> bool:
        if b"\n" in self._inbox:
            return True
        readable, _, _ = select.select([self._control], [], [], max(0.0, deadline - time.monotonic()))
        return bool(readable)

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._inbox:
            if not self._readable(deadline):
                raise WorkerBroken("the worker process does not answer", hint="try again; oomtune doctor may say more")
            data = self._control.recv(65536)
            if not data:
                raise WorkerBroken(
                    "the worker process ended by itself", hint=_tail(self.root / "worker.txt")[-600:].strip()
                )
            self._inbox += data
        line, self._inbox = self._inbox.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

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


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")
