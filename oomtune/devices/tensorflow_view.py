"""What TensorFlow sees here, asked of a worker, because this side does not import it."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.trials.ask import ask
from oomtune.trials.worker_host import WorkerHost

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    name: str
    memory_limit_bytes: int
    bus_id: str = ""
    """Where it is plugged in, which tells it from others of its name; empty where TensorFlow does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """TensorFlow's own view: its versions, whether it was built with CUDA, and the GPUs it finds."""

    tensorflow: str
    keras: str
    cuda_build: bool
    cuda_version: str | None = None
    gpus: tuple[Gpu, ...] = ()


def ask_tensorflow(host: WorkerHost) -> Machine:
    """Have a worker list TensorFlow's devices, in a process of its own."""
    return ask(host, "describe", None, Machine, timeout_s=_TIMEOUT_S)
