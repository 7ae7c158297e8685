"""Runners that run trials in real processes.

`ForkRunner` forks each trial from a worker that has imported TensorFlow; `SpawnRunner` starts a new interpreter for
each trial. Both work around two machine faults, with a notice: CUDA that does not survive a fork, and a CPU that lists
instructions that it can't run.
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable, Mapping

from pydantic import TypeAdapter, ValidationError

from oomtune.domain import (
    Budget,
    Builder,
    Device,
    Kind,
    ModelSpec,
    Outcome,
    ProbeSpec,
    Reply,
    Script,
    Stage,
    TrainStep,
    Trial,
    WorkOrder,
)
from oomtune.trials.outcome import Ending, decide
from oomtune.trials.runner import TimeUp
from oomtune.trials.worker_host import Exit, Mode, WorkerHost, order_document

_REPLY = TypeAdapter(Reply)

# With this setting oneDNN leaves out the matrix tiles (AMX), which some virtual machines list and can't run.
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
        """Variables that trials and later training need on this machine."""

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if within_s is not None and within_s <= 0:
            raise TimeUp
        stop_at = math.inf if within_s is None else time.monotonic() + within_s
        if not self.environment.items() <= self.host.environment.items():
            self._replace_host(self.host.mode)
        order = order_document("trial", self._order(trial))
        worker_exit = self._call(order, stop_at)
        if self._work_around_machine_fault(worker_exit):
            worker_exit = self._call(order, stop_at)
        ending = _ending(worker_exit)
        if worker_exit.timed_out and worker_exit.duration_s < self.spec.trial.timeout_s:
            return _decide_at_deadline(trial, self.budget, ending)
        return _name_users_code(decide(trial, self.budget, ending), self.spec.model)

    def _order(self, trial: Trial) -> WorkOrder:
        return WorkOrder(
            trial=trial,
            folder=self.spec.folder,
            model=self.spec.model,
            variant=self.spec.variant,
            dataset=self.spec.dataset,
            training=self.spec.training,
            settings=self.spec.trial,
            device=self.device,
            budget=self.budget,
            scan=self.spec.scan,
        )

    def _call(self, order: bytes, stop_at: float) -> Exit:
        self.host.wait_until_ready()
        left_s = max(0.0, stop_at - time.monotonic())
        return self.host.call(order, timeout_s=min(self.spec.trial.timeout_s, left_s))

    def close(self) -> None:
        self.host.close()

    def _work_around_machine_fault(self, worker_exit: Exit) -> bool:
        """Change how trials run if the machine is at fault. Return True if this trial should run again."""
        no_tiles = worker_exit.exit_code == -signal.SIGILL and self.device.kind == "cpu"
        if no_tiles and _ISA not in {*self.environment, *os.environ}:
            self.notice(
                "this CPU lists matrix instructions (AMX) that it can't run; "
                f"trials continue with {_ISA}={_WITHOUT_TILES}, and training needs that setting too"
            )
            self.environment[_ISA] = _WITHOUT_TILES
            self._replace_host(self.host.mode)
            return True
        if self.device.kind == "gpu" and self.host.mode == "fork" and _is_fork_failure(worker_exit):
            self.notice("CUDA can't be used in a forked process here; trials continue in fresh processes")
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


def _ending(worker_exit: Exit) -> Ending:
    return Ending(
        reply=_parse(worker_exit.reply),
        so_far=_parse(worker_exit.so_far),
        exit_code=worker_exit.exit_code,
        stderr_tail=worker_exit.output_tail,
        timed_out=worker_exit.timed_out,
        duration_s=worker_exit.duration_s,
    )


def _name_users_code(outcome: Outcome, model: ModelSpec) -> Outcome:
    """Name the user's code in the error of a process that died, because that code may have ended it."""
    match model:
        case Builder(function=name) | TrainStep(factory=name) | Script(path=name):
            code = f"model.{model.kind}: {name}"
        case _:
            return outcome
    if outcome.kind is Kind.FITS or outcome.error.code != "died":
        return outcome
    error = dataclasses.replace(outcome.error, message=f"{code}: {outcome.error.message}")
    return dataclasses.replace(outcome, error=error)


def _decide_at_deadline(trial: Trial, budget: Budget, ending: Ending) -> Outcome:
    """Return the outcome of what had run when the time limit stopped the trial. Raise `TimeUp` if nothing had."""
    so_far = ending.so_far
    if so_far is not None and so_far.stage is Stage.DONE:
        return decide(trial, budget, ending)
    if so_far is None or not so_far.points:
        raise TimeUp
    climb = dataclasses.replace(so_far, stage=Stage.DONE, peak_bytes=so_far.points[-1].peak_bytes, error=None)
    return decide(trial, budget, dataclasses.replace(ending, reply=climb, timed_out=False))


def _parse(document: bytes) -> Reply | None:
    """Return the reply; None if it is incomplete, or if the user's code garbled it."""
    try:
        return _REPLY.validate_json(document) if document else None
    except ValidationError:
        return None


def _is_fork_failure(worker_exit: Exit) -> bool:
    return b"initialization error" in worker_exit.reply or "CUDA_ERROR_NOT_INITIALIZED" in worker_exit.output_tail
