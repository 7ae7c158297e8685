"""What TensorFlow sees here, asked of a worker, because this side does not import it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from oomtune.errors import WorkerBroken
from oomtune.trials.host import WorkerHost

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    name: str
    memory_limit_bytes: int


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
    answer = host.call(b"describe", timeout_s=_TIMEOUT_S)
    if not answer.reply:
        raise WorkerBroken(
            "TensorFlow could not list its devices", hint=answer.output_tail[-600:].strip() or "try: oomtune doctor"
        )
    seen = json.loads(answer.reply)
    return Machine(
        tensorflow=seen["tensorflow"],
        keras=seen["keras"],
        cuda_build=seen["cuda_build"],
        cuda_version=seen["cuda_version"],
        gpus=tuple(Gpu(**gpu) for gpu in seen["gpus"]),
    )
