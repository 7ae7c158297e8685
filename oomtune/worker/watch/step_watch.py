"""Observes each step of a trial: the time, the memory after the step, and whether the loss is finite."""

from __future__ import annotations

import math
import time

from oomtune.domain import Finding, Purpose, Search, Stage, SyntheticData, WorkOrder
from oomtune.errors import LossNotFinite
from oomtune.worker.process import device
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch.anatomy import AnatomyWatch
from oomtune.worker.watch.growth import GrowthWatch
from oomtune.worker.watch.retracing import RetraceWatch

# Each size of a climb runs two steps after warm-up, because the peak of a single step is noisy.
CLIMB_STEPS = 2


def step_count(order: WorkOrder) -> int:
    """Return how many steps the trial, or each size of a climb, runs, including warm-up."""
    settings = order.settings
    by_purpose = {
        Purpose.CALIBRATE: CLIMB_STEPS,
        Purpose.SEARCH: settings.steps,
        Purpose.CONFIRM: settings.confirm_steps,
    }
    return settings.warmup_steps + by_purpose[order.trial.purpose]


class OverBudget(Exception):
    """The peak is over the budget, so no further step can change the trial's outcome."""


class StepWatch:
    """Observes every step of a trial, however it trains, and records the results in `progress`.

    A brief watch serves one of several sizes in a process, each of which runs only a few steps.
    """

    def __init__(self, order: WorkOrder, progress: Progress, *, brief: bool = False) -> None:
        self.order = order
        self.progress = progress
        self.warmup_left = order.settings.warmup_steps
        self.steps_run = 0
        self.began_at = 0.0
        shows_anatomy = isinstance(order.trial, Search) and order.trial.shows_anatomy
        self.anatomy = AnatomyWatch(order, progress) if shows_anatomy else None
        # Only a confirm run has enough steps to show memory growth and repeated tracing.
        self.is_confirm = order.trial.purpose is Purpose.CONFIRM and not brief
        self.watches = (RetraceWatch(progress), GrowthWatch(progress)) if self.is_confirm else ()

    def begin_step(self) -> None:
        self.progress.stage = Stage.WARMUP if self.warmup_left else Stage.TRAIN
        if self.anatomy is not None:
            self.anatomy.begin_step()
        if not self.warmup_left:
            for watch in self.watches:
                watch.begin_step()
        self.began_at = time.perf_counter()

    def end_step(self, loss: float) -> None:
        """Record the step, once the device has finished it. Raises `OverBudget` and `LossNotFinite`."""
        device.discard_dumps(self.order)
        step_ms = round((time.perf_counter() - self.began_at) * 1000, 3)
        self.steps_run += 1
        current_bytes, self.progress.peak_bytes = device.memory_bytes(self.order)
        if self.anatomy is not None:
            self.anatomy.end_step()
        self._check_loss(loss)
        if self.warmup_left:
            self.warmup_left -= 1
        else:
            self.progress.step_ms.append(step_ms)
            self.progress.memory_after_step_bytes.append(current_bytes)
            for watch in self.watches:
                watch.end_step()
        if self.progress.peak_bytes > self.order.budget.budget_bytes:
            raise OverBudget

    def _check_loss(self, loss: float) -> None:
        if math.isfinite(loss):
            self.progress.loss_was_finite = True
            return
        precision = self.order.trial.candidate.precision
        if precision == "float32" and self.progress.loss_was_finite and isinstance(self.order.dataset, SyntheticData):
            # Random targets can't be learned, so a large learning rate diverges on them. Memory stays the same.
            diverged = Finding(
                kind="loss",
                message=f"the loss is {loss} from step {self.steps_run} on; the data is random, and memory use is not "
                "affected",
                hint="if it also diverges on your own data, lower the learning rate",
            )
            self.progress.add_finding(diverged, subject="", keep_first=True)
            return
        raise LossNotFinite(
            f"the loss is {loss} at step {self.steps_run} under {precision}",
            hint="check the loss and the learning rate"
            + ("" if precision == "float32" else f", or leave {precision} out of search.precision"),
        )

    def begin_validation(self) -> None:
        self.progress.stage = Stage.VALIDATE

    def end_validation(self) -> None:
        device.discard_dumps(self.order)
        self.progress.validated = True
        self.progress.stage = Stage.TRAIN  # the rest of the epoch's end follows
        self.progress.peak_bytes = device.peak_bytes(self.order)
