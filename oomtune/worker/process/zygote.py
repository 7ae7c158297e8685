"""The process between the command line and the trials.

In fork mode it imports TensorFlow once, touches no device, and forks a child for each trial, so that a trial does not
pay for the import. In spawn mode it imports nothing and starts a fresh interpreter for each trial. In both modes it
kills a trial's whole process group when the trial ends, or when its own parent ends, which closes the control socket.

Messages on the control socket are JSON, one per line. In: {"scratch": folder}, with the reply pipe's descriptor. Out:
{"ready": ...} or {"broken": reason}, then {"started": pid} and {"exited": code} for each trial.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from oomtune.worker.process.lifeline import die_with_parent
from oomtune.worker.sandbox import landlock

_BOOT = "import sys; sys.path[:] = filter(None, sys.path); from oomtune.worker.process.child import main; main()"


def serve() -> None:
    """Run trials until the control socket closes. Arguments: mode, the socket's descriptor, the folder to remove."""
    mode, control_fd, root = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    try:
        _serve(mode, control_fd)
    finally:
        # The parent can't remove the folder if it was killed.
        shutil.rmtree(root, ignore_errors=True)
    # The parent waits for this process, and a clean exit takes a second to tear TensorFlow down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _serve(mode: str, control_fd: int) -> None:
    # Until the import is done there is no child to kill, so SIGTERM may end this process at once.
    die_with_parent(os.getppid(), signal.SIGTERM)
    control = socket.socket(fileno=control_fd)
    try:
        if mode == "fork":
            import oomtune.worker.process.child  # noqa: F401 - imports TensorFlow, Keras and everything else a trial needs
    except ImportError as error:
        _send(control, {"broken": f"{type(error).__name__}: {error}"})
        return
    _Warden(control, mode).run()


class _Warden:
    """Serves one control socket; at most one trial runs at a time."""

    def __init__(self, control: socket.socket, mode: str) -> None:
        self.control = control
        self.mode = mode
        self.child: int | None = None
        self.inbox = b""
        self.wakeup, wakeup_in = socket.socketpair()
        self.wakeup.setblocking(False)
        wakeup_in.setblocking(False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(wakeup_in.fileno(), warn_on_full_buffer=False)
        self.wakeup_in = wakeup_in
        self.is_stopping = False

    def _on_signal(self, number: int, _frame: object) -> None:
        self.is_stopping |= number != signal.SIGCHLD

    def run(self) -> None:
        _send(self.control, {"ready": self.mode, "fences_writes": landlock.is_available()})
        while not self.is_stopping:
            readable, _, _ = select.select([self.control, self.wakeup], [], [])
            if self.wakeup in readable:
                self.wakeup.recv(4096)
                self._reap()
            if self.control in readable and not self._receive():
                break
        if self.child is not None:
            _kill_group(self.child)

    def _receive(self) -> bool:
        """Handle the messages that have arrived; return False if the other side is gone."""
        data, descriptors, _, _ = socket.recv_fds(self.control, 65536, 16)
        if not data:
            return False
        self.inbox += data
        while b"\n" in self.inbox:
            line, self.inbox = self.inbox.split(b"\n", 1)
            self._start(json.loads(line)["scratch"], descriptors.pop(0))
        return True

    def _start(self, scratch: str, reply_fd: int) -> None:
        self.child = self._fork(scratch, reply_fd) if self.mode == "fork" else self._spawn(scratch, reply_fd)
        os.close(reply_fd)
        _send(self.control, {"started": self.child})

    def _fork(self, scratch: str, reply_fd: int) -> int:
        from oomtune.worker.process import child

        zygote_pid = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            self._become_child(scratch)
            child.run(scratch=scratch, reply_fd=reply_fd, parent_pid=zygote_pid)
        except BaseException:  # noqa: BLE001 - a child must never go on as a second warden
            traceback.print_exc()
        os._exit(1)

    def _become_child(self, scratch: str) -> None:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for inherited in (self.control, self.wakeup, self.wakeup_in):
            inherited.close()
        _redirect_output(scratch)

    def _spawn(self, scratch: str, reply_fd: int) -> int:
        with (Path(scratch) / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, scratch, str(reply_fd)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(reply_fd,),
                start_new_session=True,
            )
        # The warden reaps by pid; a return code keeps Popen from reaping too when it is garbage-collected.
        process.returncode = 0
        return process.pid

    def _reap(self) -> None:
        if self.child is None or os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            return
        # Kill the group before reaping the child, while its id can't yet be reused by another process.
        _kill_group(self.child)
        _, status = os.waitpid(self.child, 0)
        self.child = None
        _send(self.control, {"exited": os.waitstatus_to_exitcode(status)})


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    try:
        control.sendall(json.dumps(message).encode() + b"\n")
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent is gone; the next read notices


def _redirect_output(scratch: str) -> None:
    """Send both streams to a file, because native code writes diagnostics to them that must not reach the screen."""
    output = os.open(Path(scratch) / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # the whole group has ended
