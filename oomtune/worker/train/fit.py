"""Trains a candidate through `Model.fit`: warm-up, steps, validation and a checkpoint, as the user's own run would."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from typing import TYPE_CHECKING, Any

import keras

from oomtune.domain import (
    BucketTurns,
    Candidate,
    Climb,
    Confirm,
    Finding,
    Point,
    Remat,
    RematMode,
    Search,
    Stage,
    WorkOrder,
)
from oomtune.keras.remat import rematerialise
from oomtune.search.climb import climb, go_further
from oomtune.worker.build import model
from oomtune.worker.data import agreement, trial_batch
from oomtune.worker.process import device
from oomtune.worker.process.progress import Progress
from oomtune.worker.train import checkpoint
from oomtune.worker.watch.step_watch import CLIMB_STEPS, OverBudget, StepWatch, step_count

if TYPE_CHECKING:
    import tensorflow as tf

# Above this share of the budget, a climb runs its sizes through the end of an epoch, as a confirm run does.
_NEAR_SHARE = 0.5


def run(order: WorkOrder, progress: Progress) -> None:
    """Carry out the trial. `progress` holds the observations, even if this raises."""
    candidate = order.trial.candidate
    progress.batch_size = candidate.batch_size
    progress.stage = Stage.BUILD
    network = model.build(order, candidate, any_length=isinstance(order.trial, BucketTurns))
    progress.jit_compile = bool(network.jit_compile)
    if network.built:
        progress.parameters = network.count_params()  # set early, because a trial that does not fit never finishes
    if isinstance(order.trial, Climb):
        _climb(order, order.trial, network, progress)
    else:
        _train(order, network, progress)
    if candidate.remat is not RematMode.NONE:
        _report_remat(candidate.remat, network, progress, order.device.kind)
    progress.parameters = network.count_params()
    progress.stage = Stage.DONE
    if isinstance(order.trial, Search | Confirm) and order.trial.further:
        progress.finish_candidate()
        _run_further_sizes(order, order.trial, network, progress)


def _report_remat(remat: Remat, network: keras.Model, progress: Progress, device_kind: str) -> None:
    """Report layers that rematerialisation could not reach, and loops for which it saves nothing."""
    if reason := rematerialise(network, str(remat)).missed():
        progress.add_finding(Finding(kind="remat", message=f"remat {remat}: {reason}"))
    if not (network.jit_compile and device_kind == "cpu"):
        return
    # XLA on a CPU allocates all memory of a loop before the loop runs.
    loops = [layer.name for layer in network._flatten_layers() if isinstance(layer, keras.layers.RNN)]
    if loops:
        others = f" and {len(loops) - 1} more" if len(loops) > 1 else ""
        useless = Finding(
            kind="remat",
            message=f"remat {remat}: under XLA on a CPU it saves nothing for loops over time, such as {loops[0]}"
            f"{others}",
            hint="set training.jit_compile: false to train without XLA, where it does save memory",
        )
        progress.add_finding(useless)


class FitCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Passes the steps of `Model.fit` on to a `StepWatch`."""

    def __init__(self, watch: StepWatch) -> None:
        super().__init__()
        self.watch = watch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.watch.begin_step()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.watch.end_step(float((logs or {}).get("loss", 0.0)))  # float() also waits for the device

    def on_test_begin(self, logs: Any = None) -> None:
        self.watch.begin_validation()

    def on_test_end(self, logs: Any = None) -> None:
        self.watch.end_validation()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.watch.is_confirm:
            checkpoint.save(self.model, self.watch.order, self.watch.progress)


def _train(order: WorkOrder, network: keras.Model, progress: Progress) -> None:
    """Train for two short epochs, because training needs more memory after the end of an epoch than before."""
    steps = step_count(order)
    progress.stage = Stage.DATA
    if isinstance(order.trial, BucketTurns):
        batches, steps_to_fill = trial_batch.in_buckets(order, order.trial)
        steps = max(steps, steps_to_fill)
    else:
        batches = trial_batch.pipeline(order, order.trial.candidate)
    agreement.check(order, network, batches)
    validation = _validation(order, order.trial.candidate)
    _fit(network, batches, steps=steps, epochs=2, watch=StepWatch(order, progress), validation=validation)
    progress.peak_bytes = device.peak_bytes(order)


def _validation(order: WorkOrder, candidate: Candidate) -> tf.data.Dataset | None:
    size = order.training.validation_batch_size
    if size == 0:
        return None
    if isinstance(order.trial, BucketTurns):
        return trial_batch.in_buckets(order, order.trial)[0]
    return trial_batch.pipeline(order, candidate.lane.at(size or candidate.batch_size))


def _climb(order: WorkOrder, trial: Climb, network: keras.Model, progress: Progress) -> None:
    """Run several sizes in this process. The graph is traced once, for any batch size."""
    budget_bytes = order.budget.budget_bytes

    def run(size: int) -> Point:
        is_near = bool(progress.points) and progress.points[-1].peak_bytes > _NEAR_SHARE * budget_bytes
        progress.points.append(_measure_size(order, network, progress, size, through_epoch_end=is_near))
        return progress.points[-1]

    climb(trial.sizes, run, budget_bytes=budget_bytes, every=trial.every_size)


def _run_further_sizes(order: WorkOrder, trial: Search | Confirm, network: keras.Model, progress: Progress) -> None:
    """Go on to larger sizes after the candidate, until one does not fit or their time is up."""
    step_ms = (progress.step_ms or [0.0])[-1]
    first = Point(batch_size=trial.candidate.batch_size, peak_bytes=progress.peak_bytes or 0, step_ms=step_ms)
    from_afar = trial.further_within_s is not None
    deadline = math.inf if trial.further_within_s is None else time.monotonic() + trial.further_within_s

    def run(size: int) -> Point | None:
        if time.monotonic() >= deadline:
            return None
        progress.points.append(_measure_size(order, network, progress, size, through_epoch_end=True))
        return progress.points[-1]

    go_further(trial.further, first, run, budget_bytes=order.budget.budget_bytes, from_afar=from_afar)


def _measure_size(
    order: WorkOrder, network: keras.Model, progress: Progress, size: int, *, through_epoch_end: bool
) -> Point:
    """Train with this batch size and return its peak and step time, in the process that ran the earlier sizes."""
    candidate = order.trial.candidate.lane.at(size)
    progress.batch_size = size
    progress.stage = Stage.DATA
    progress.save(progress.reply())
    batches = trial_batch.pipeline(order, candidate)
    agreement.check(order, network, batches)
    device.reset_peak(order)
    _fit(
        network,
        batches,
        steps=order.settings.warmup_steps + CLIMB_STEPS + (2 if through_epoch_end else 0),
        epochs=2 if through_epoch_end else 1,
        watch=StepWatch(order, progress, brief=True),
        validation=_validation(order, candidate) if through_epoch_end else None,
    )
    step_ms = min(progress.step_ms[-2:], default=0.0)
    return Point(batch_size=size, peak_bytes=device.peak_bytes(order), step_ms=step_ms)


def _fit(
    network: keras.Model,
    batches: tf.data.Dataset,
    *,
    steps: int,
    epochs: int,
    watch: StepWatch,
    validation: tf.data.Dataset | None,
) -> None:
    if network.built:
        # `fit` does this only for a model that is not built yet. With every variable made beforehand, the step is
        # traced once instead of twice; the graph is the same.
        network._symbolic_build(data_batch=batches.element_spec)
    model.bring_update_near(network)
    with warnings.catch_warnings(), contextlib.suppress(OverBudget):
        warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
        network.fit(
            batches,
            steps_per_epoch=math.ceil(steps / epochs),
            epochs=epochs,
            verbose=0,
            callbacks=[FitCallback(watch)],
            validation_data=validation,
            validation_steps=None if validation is None else 1,
        )
