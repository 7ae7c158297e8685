"""What is seen of each step of a trial: its time, the memory after it, and that its loss is a number."""

from __future__ import annotations

import math
import time

from oomtune.domain import Finding, Purpose, Search, Stage, SyntheticData, WorkOrder
from oomtune.errors import LossNotFinite
from oomtune.worker.process import device
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch import allocator_state as allocator
from oomtune.worker.watch.anatomy import Anatomist
from oomtune.worker.watch.growth import GrowthWatch
from oomtune.worker.watch.retracing import RetraceWatch

# A size of a climb runs two steps after warm-up: the peak of one alone is noisy.
CLIMB_STEPS = 2


def steps_wanted(order: WorkOrder) -> int:
    """How many steps a trial runs, warm-up included; for a climb, each of its sizes."""
    settings = order.settings
    by_purpose = {
        Purpose.CALIBRATE: CLIMB_STEPS,
        Purpose.SEARCH: settings.steps,
        Purpose.CONFIRM: settings.confirm_steps,
    }
    return settings.warmup_steps + by_purpose[order.trial.purpose]


class OverBudget(Exception):
    """The peak is over the budget: that is the answer, and no further step can change it."""


class Witness:
    """Told when a step begins and ends, however it is run; writes what it saw into `progress`. A brief one sees one of
    several sizes in a process, for a few steps."""

    def __init__(self, order: WorkOrder, progress: Progress, *, brief: bool = False) -> None:
        self.order = order
        self.progress = progress
        self.warmup_left = order.settings.warmup_steps
        self.steps_seen = 0
        self.began = 0.0
        shows_anatomy = isinstance(order.trial, Search) and order.trial.shows_anatomy
        self.anatomist = Anatomist(order, progress) if shows_anatomy else None
        # What only shows from step to step is looked for where there are enough of them.
        self.confirms = order.trial.purpose is Purpose.CONFIRM and not brief
        self.watches = (RetraceWatch(progress), GrowthWatch(progress)) if self.confirms else ()

    def step_begins(self) -> None:
        self.progress.stage = Stage.WARMUP if self.warmup_left else Stage.TRAIN
        if self.anatomist is not None:
            self.anatomist.step_begins(self.steps_seen)
        if not self.warmup_left:
            for watch in self.watches:
                watch.step_begins()
        self.began = time.perf_counter()

    def step_ended(self, loss: float) -> None:
        """To be called when the device has finished the step. Raises `OverBudget` when that is known."""
        allocator.forgive(self.order)
        step_ms = round((time.perf_counter() - self.began) * 1000, 3)
        self.steps_seen += 1
        current, self.progress.peak_bytes = device.memory(self.order)
        if self.anatomist is not None:
            self.anatomist.step_ended()
        self._check(loss)
        if self.warmup_left:
            self.warmup_left -= 1
        else:
            self.progress.step_ms.append(step_ms)
            self.progress.memory_after_step_bytes.append(current)
            for watch in self.watches:
                watch.step_ended()
        if self.progress.peak_bytes > self.order.budget.budget_bytes:
            raise OverBudget

    def _check(self, loss: float) -> None:
        if math.isfinite(loss):
            self.progress.loss_was_finite = True
            return
        precision = self.order.trial.candidate.precision
        if precision == "float32" and self.progress.loss_was_finite and isinstance(self.order.dataset, SyntheticData):
            self._diverged(loss)
            return
        raise LossNotFinite(
            f"the loss is {loss} at step {self.steps_seen} under {precision}",
            hint="check the loss and the learning rate"
            + ("" if precision == "float32" else f", or leave {precision} out of search.precision"),
        )

    def _diverged(self, loss: float) -> None:
        """Random targets can't be learned, and a bold optimizer runs away on them; memory stays what it is."""
        said = f"the loss is {loss} from step {self.steps_seen} on, which is no matter of memory: the data is random"
        hint = "if it is so on your own data, lower the learning rate"
        self.progress.found_first(Finding(kind="loss", message=said, hint=hint))

    def validation_begins(self) -> None:
        self.progress.stage = Stage.VALIDATE

    def validation_ended(self) -> None:
        allocator.forgive(self.order)
        self.progress.validated = True
        self.progress.stage = Stage.TRAIN  # what comes now is the epoch's end
        self.progress.peak_bytes = device.memory(self.order)[1]
