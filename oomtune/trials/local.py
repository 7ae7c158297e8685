"""Runners that run trials in real processes.

`ForkRunner` forks each trial from a worker that has imported TensorFlow; `SpawnRunner` starts a new interpreter for
each trial. Both work around two faults of machines and say so: a CUDA that can't be forked, and a CPU that lists
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
        """Variables that trials need on this machine, and training too."""

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if within_s is not None and within_s <= 0:
            raise TimeUp
        stop_at = math.inf if within_s is None else time.monotonic() + within_s
        if not self.environment.items() <= self.host.environment.items():
            self._replace_host(self.host.mode)
        order = order_document("trial", self._order(trial))
        ended = self._call(order, stop_at)
        if self._works_around(ended):
            ended = self._call(order, stop_at)
        ending = _ending(ended)
        if ended.timed_out and ended.duration_s < self.spec.trial.timeout_s:
            return _cut_short(trial, self.budget, ending)
        return _named(decide(trial, self.budget, ending), self.spec.model)

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

    def _works_around(self, ended: Exit) -> bool:
        """Return True if the machine was at fault and the trial should run again in another way."""
        no_tiles = ended.exit_code == -signal.SIGILL and self.device.kind == "cpu"
        if no_tiles and _ISA not in {*self.environment, *os.environ}:
            self.notice(
                "this CPU lists matrix instructions (AMX) that it can't run; "
                f"trials continue with {_ISA}={_WITHOUT_TILES}, and training needs that setting too"
            )
            self.environment[_ISA] = _WITHOUT_TILES
            self._replace_host(self.host.mode)
            return True
        if self.device.kind == "gpu" and self.host.mode == "fork" and _is_fork_failure(ended):
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


def _ending(ended: Exit) -> Ending:
    return Ending(
        reply=_parse(ended.reply),
        so_far=_parse(ended.so_far),
        exit_code=ended.exit_code,
        stderr_tail=ended.output_tail,
        timed_out=ended.timed_out,
        duration_s=ended.duration_s,
    )


def _named(outcome: Outcome, model: ModelSpec) -> Outcome:
    """Name the user's code in the error if that code may have ended the process."""
    match model:
        case Builder(function=name) | TrainStep(factory=name) | Script(path=name):
            code = f"model.{model.kind}: {name}"
        case _:
            return outcome
    if outcome.kind is Kind.FITS or outcome.error.code != "died":
        return outcome
    error = dataclasses.replace(outcome.error, message=f"{code}: {outcome.error.message}")
    return dataclasses.replace(outcome, error=error)


def _cut_short(trial: Trial, budget: Budget, ending: Ending) -> Outcome:
    """Return what the trial had proved when the time limit stopped it. Raise `TimeUp` if that is nothing."""
    so_far = ending.so_far
    if so_far is not None and so_far.stage is Stage.DONE:
        return decide(trial, budget, ending)
    if so_far is None or not so_far.points:
        raise TimeUp
    climb = dataclasses.replace(so_far, stage=Stage.DONE, peak_bytes=so_far.points[-1].peak_bytes, error=None)
    return decide(trial, budget, dataclasses.replace(ending, reply=climb, timed_out=False))


def _parse(document: bytes) -> Reply | None:
    """Return the reply; None if it is incomplete, or if the user's code wrote it."""
    try:
        return _REPLY.validate_json(document) if document else None
    except ValidationError:
        return None


def _is_fork_failure(ended: Exit) -> bool:
    return b"initialization error" in ended.reply or "CUDA_ERROR_NOT_INITIALIZED" in ended.output_tail
