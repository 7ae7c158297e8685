"""Training for real: warm-up, steps and validation through `Model.fit`, as the user's own run would go."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from typing import TYPE_CHECKING, Any

import keras

from oomtune.calibration import next_size
from oomtune.domain import Candidate, Point, Purpose, Stage, WorkOrder
from oomtune.errors import TrialCrashed
from oomtune.worker import data, device, model, stall
from oomtune.worker.progress import Progress

if TYPE_CHECKING:
    import tensorflow as tf

# From here on a climb's sizes are run as an answer would be.
_NEAR_SHARE = 0.5


def run(order: WorkOrder, progress: Progress) -> None:
    """Carry out the trial; what was seen is in `progress`, also when this raises."""
    candidate = order.trial.candidate
    progress.batch_size = candidate.batch_size
    progress.stage = Stage.BUILD
    network = model.build(order, candidate)
    progress.jit_compile = bool(network.jit_compile)
    if order.trial.purpose is Purpose.CALIBRATE:
        _climb(order, network, progress)
    else:
        _train(order, network, progress)
    progress.stage = Stage.DONE


class _OverBudget(Exception):
    """The peak is over the budget: that is the answer, and no further step can change it."""


class _Witness(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Times each step, reads memory after it, and checks that the loss is a number."""

    def __init__(self, order: WorkOrder, progress: Progress, warmup_steps: int) -> None:
        super().__init__()
        self.order = order
        self.progress = progress
        self.warmup_left = warmup_steps
        self.steps_seen = 0
        self.began = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.progress.stage = Stage.WARMUP if self.warmup_left else Stage.TRAIN
        self.began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        loss = float((logs or {}).get("loss", 0.0))  # also waits for the device to finish the step
        stall.forgive(self.order)
        step_ms = (time.perf_counter() - self.began) * 1000
        self.steps_seen += 1
        current, self.progress.peak_bytes = device.memory(self.order)
        if not math.isfinite(loss):
            precision = self.order.trial.candidate.precision
            raise TrialCrashed(
                f"the loss is {loss} at step {self.steps_seen} under {precision}",
                hint="check the loss and the learning rate"
                + ("" if precision == "float32" else f", or leave {precision} out of search.precision"),
            )
        if self.warmup_left:
            self.warmup_left -= 1
        else:
            self.progress.step_ms.append(step_ms)
            self.progress.memory_after_step_bytes.append(current)
        if self.progress.peak_bytes > self.order.budget.budget_bytes:
            raise _OverBudget

    def on_test_begin(self, logs: Any = None) -> None:
        self.progress.stage = Stage.VALIDATE

    def on_test_end(self, logs: Any = None) -> None:
        stall.forgive(self.order)
        self.progress.validated = True
        self.progress.peak_bytes = device.memory(self.order)[1]


def _train(order: WorkOrder, network: keras.Model, progress: Progress) -> None:
    """Steps, a validation pass in the middle, and steps after it: training that goes on after an epoch's end needs
    more than training that has only begun."""
    settings, candidate = order.settings, order.trial.candidate
    confirming = order.trial.purpose is Purpose.CONFIRM
    steps = settings.warmup_steps + (settings.confirm_steps if confirming else settings.steps)
    progress.stage = Stage.DATA
    _fit(
        network,
        data.pipeline(order, candidate),
        steps=steps,
        witness=_Witness(order, progress, settings.warmup_steps),
        validation=_validation(order, candidate),
    )
    progress.peak_bytes = device.memory(order)[1]


def _validation(order: WorkOrder, candidate: Candidate) -> tf.data.Dataset | None:
    size = order.training.validation_batch_size
    if size == 0:
        return None
    return data.pipeline(order, candidate.lane.at(size or candidate.batch_size))


def _climb(order: WorkOrder, network: keras.Model, progress: Progress) -> None:
    """Several sizes in one process, each measured alone; the graph is traced once, for any batch size."""
    lane, budget_bytes = order.trial.candidate.lane, order.budget.budget_bytes
    while (size := next_size(order.trial.climb, progress.points, budget_bytes)) is not None:
        progress.batch_size = size
        progress.stage = Stage.DATA
        progress.note(progress.reply(None))
        # Only a size near the edge has to show what it needs after an epoch's end too.
        near = bool(progress.points) and progress.points[-1].peak_bytes > _NEAR_SHARE * budget_bytes
        batches = data.pipeline(order, lane.at(size))
        device.reset_peak(order)
        _fit(
            network,
            batches,
            # Two steps after warm-up: the peak of one alone is noisy.
            steps=order.settings.warmup_steps + (4 if near else 2),
            witness=_Witness(order, progress, order.settings.warmup_steps),
            validation=_validation(order, lane.at(size)) if near else None,
        )
        peak_bytes = device.memory(order)[1]
        progress.points.append(
            Point(batch_size=size, peak_bytes=peak_bytes, step_ms=min(progress.step_ms[-2:], default=0.0))
        )


def _fit(
    network: keras.Model,
    batches: tf.data.Dataset,
    *,
    steps: int,
    witness: _Witness,
    validation: tf.data.Dataset | None,
) -> None:
    epochs = 1 if validation is None else 2
    if network.built:
        # What `fit` does for a model that is not built yet. With every variable made beforehand the step is traced
        # once, not twice; the graph is the same.
        network._symbolic_build(data_batch=batches.element_spec)
    with warnings.catch_warnings(), contextlib.suppress(_OverBudget):
        warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
        network.fit(
            batches,
            steps_per_epoch=math.ceil(steps / epochs),
            epochs=epochs,
            verbose=0,
            callbacks=[witness],
            validation_data=validation,
            validation_steps=None if validation is None else 1,
        )
