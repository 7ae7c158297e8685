"""Runners that run trials in real processes.

`ForkRunner` forks each trial from a worker that has TensorFlow imported; `SpawnRunner` starts a fresh interpreter for
each. Two things that a machine can do to a trial are mended here, once, and said: a CUDA that can't be forked (go on
with fresh processes), and a CPU that lists instructions it can't run (go on without them).
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
from oomtune.trials.ask import order_document
from oomtune.trials.outcome import Ending, decide
from oomtune.trials.runner import TimeUp
from oomtune.trials.worker_host import Exit, Mode, WorkerHost

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

    def run(self, trial: Trial, *, within_s: float | None = None) -> Outcome:
        if within_s is not None and within_s <= 0:
            raise TimeUp
        stop_at = None if within_s is None else time.monotonic() + within_s
        if not self.environment.items() <= self.host.environment.items():
            self._replace_host(self.host.mode)
        order = WorkOrder(
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
        document = order_document("trial", order)
        ended = self._call(document, stop_at)
        if self._mended(ended):
            ended = self._call(document, stop_at)
        ending = _ending(ended)
        if ended.timed_out and ended.duration_s < self.spec.trial.timeout_s:
            return _cut_short(trial, self.budget, ending)
        return _named(decide(trial, self.budget, ending), self.spec.model)

    def _call(self, document: bytes, stop_at: float | None) -> Exit:
        self.host.wait_until_ready()
        left_s = math.inf if stop_at is None else max(0.0, stop_at - time.monotonic())
        return self.host.call(document, timeout_s=min(self.spec.trial.timeout_s, left_s))

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


def _named(outcome: Outcome, model: ModelSpec) -> Outcome:
    """The outcome; where the user's own code may have ended the process, with its name."""
    match model:
        case Builder(function=name) | TrainStep(factory=name) | Script(path=name):
            own = f"model.{model.kind}: {name}"
        case _:
            return outcome
    if outcome.error is None or outcome.error.code != "died":
        return outcome
    error = dataclasses.replace(outcome.error, message=f"{own}: {outcome.error.message}")
    return dataclasses.replace(outcome, error=error)


def _cut_short(trial: Trial, budget: Budget, ending: Ending) -> Outcome:
    """A trial that was stopped before its end showed nothing, but for the sizes that had already run in it."""
    so_far = ending.so_far
    if so_far is not None and so_far.stage is Stage.DONE:
        return decide(trial, budget, ending)
    if so_far is None or not so_far.points:
        raise TimeUp
    climbed = dataclasses.replace(so_far, stage=Stage.DONE, peak_bytes=so_far.points[-1].peak_bytes, error=None)
    return decide(trial, budget, dataclasses.replace(ending, reply=climbed, timed_out=False))


def _parse(document: bytes) -> Reply | None:
    """A reply that is cut short or not one of ours is no reply."""
    try:
        return _REPLY.validate_json(document) if document else None
    except ValidationError:
        return None


def _cuda_not_forkable(ended: Exit) -> bool:
    return b"initialization error" in ended.reply or "CUDA_ERROR_NOT_INITIALIZED" in ended.output_tail
