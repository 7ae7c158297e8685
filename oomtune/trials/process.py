"""Runners that run trials in real processes.

`ForkRunner` forks each trial from a worker that has TensorFlow imported; `SpawnRunner` starts a fresh interpreter for
each. Two things that a machine can do to a trial are mended here, once, and said: a CUDA that can't be forked (go on
with fresh processes), and a CPU that lists instructions it can't run (go on without them).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from pydantic import TypeAdapter, ValidationError

from oomtune.domain import Budget, Device, Outcome, ProbeSpec, Reply, Trial, WorkOrder
from oomtune.trials.host import Exit, Mode, WorkerHost
from oomtune.trials.outcome import Ending, decide

_ORDER = TypeAdapter(WorkOrder)
_REPLY = TypeAdapter(Reply)

# oneDNN's name for everything but the matrix tiles (AMX) that some virtual machines list and can't run.
_ISA = "ONEDNN_MAX_CPU_ISA"
_WITHOUT_TILES = "AVX512_CORE_FP16"


class _ProcessRunner:
    mode: Mode

    def __init__(
        self,
        *,
        spec: ProbeSpec,
        device: Device,
        budget: Budget,
        notice: Callable[[str], None],
        host: WorkerHost | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.spec = spec
        self.device = device
        self.budget = budget
        self.notice = notice
        self.host = host or WorkerHost(self.mode)
        self.environment = dict(environment or {})
        """What has to be set for trials to run here; training needs it too."""

    def run(self, trial: Trial) -> Outcome:
        if not self.environment.items() <= self.host.environment.items():
            self._replace_host(self.host.mode)
        order = WorkOrder(
            trial=trial,
            folder=self.spec.folder,
            model=self.spec.model,
            dataset=self.spec.dataset,
            training=self.spec.training,
            settings=self.spec.trial,
            device=self.device,
            budget=self.budget,
        )
        document = _ORDER.dump_json(order)
        ended = self.host.call(document, timeout_s=self.spec.trial.timeout_s)
        if self._mended(ended):
            ended = self.host.call(document, timeout_s=self.spec.trial.timeout_s)
        return decide(trial, self.budget, _ending(ended))

    def close(self) -> None:
        self.host.close()

    def _mended(self, ended: Exit) -> bool:
        """Was it the machine, and is there a way around that?"""
        if (
            ended.exit_code == -signal.SIGILL
            and self.device.kind == "cpu"
            and _ISA not in {*self.environment, *os.environ}
        ):
            self.notice(
                "this CPU lists matrix instructions (AMX) that it can't run; "
                f"trials go on with {_ISA}={_WITHOUT_TILES}, and training needs that too"
            )
            self.environment[_ISA] = _WITHOUT_TILES
            self._replace_host(self.host.mode)
            return True
        if self.device.kind == "gpu" and self.host.mode == "fork" and _cuda_not_forkable(ended):
            self.notice("CUDA can't be used in a forked process here; trials go on in fresh processes")
            self._replace_host("spawn")
            return True
        return False

    def _replace_host(self, mode: Mode) -> None:
        self.host.close()
        self.host = WorkerHost(mode, {**self.host.environment, **self.environment})


class ForkRunner(_ProcessRunner):
    mode: Mode = "fork"


class SpawnRunner(_ProcessRunner):
    mode: Mode = "spawn"


def _ending(ended: Exit) -> Ending:
    return Ending(
        reply=_parse(ended.reply),
        so_far=_parse(ended.so_far),
        exit_code=ended.exit_code,
        stderr_tail=ended.output_tail,
        timed_out=ended.timed_out,
        duration_s=ended.duration_s,
    )


def _parse(document: bytes) -> Reply | None:
    """A reply that is cut short or not one of ours is no reply."""
    try:
        return _REPLY.validate_json(document) if document else None
    except ValidationError:
        return None


def _cuda_not_forkable(ended: Exit) -> bool:
    return b"initialization error" in ended.reply or "CUDA_ERROR_NOT_INITIALIZED" in ended.output_tail
