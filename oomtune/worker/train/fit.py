"""Training for real: warm-up, steps and validation through `Model.fit`, as the user's own run would go."""

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
from oomtune.search.climb import next_further, next_size
from oomtune.worker.build import model
from oomtune.worker.data import agreement, trial_batch
from oomtune.worker.process import device
from oomtune.worker.process.progress import Progress
from oomtune.worker.train import checkpoint
from oomtune.worker.watch.step_watch import CLIMB_STEPS, OverBudget, Witness, steps_wanted

if TYPE_CHECKING:
    import tensorflow as tf

# From here on a climb's sizes are run as an answer would be.
_NEAR_SHARE = 0.5


def run(order: WorkOrder, progress: Progress) -> None:
    """Carry out the trial; what was seen is in `progress`, also when this raises."""
    candidate = order.trial.candidate
    progress.batch_size = candidate.batch_size
    progress.stage = Stage.BUILD
    network = model.build(order, candidate, any_length=isinstance(order.trial, BucketTurns))
    progress.jit_compile = bool(network.jit_compile)
    if network.built:
        progress.parameters = network.count_params()  # now: a trial that does not fit comes to no end
    if isinstance(order.trial, Climb):
        _climb(order, order.trial, network, progress)
    else:
        _train(order, network, progress)
    _tell_of_model(candidate, network, progress, order.device.kind)
    progress.stage = Stage.DONE
    if isinstance(order.trial, Search | Confirm) and order.trial.further:
        progress.finish()
        _go_further(order, order.trial, network, progress)


def _tell_of_model(candidate: Candidate, network: keras.Model, progress: Progress, device_kind: str) -> None:
    if candidate.remat is not RematMode.NONE:
        if said := rematerialise(network, str(candidate.remat)).missed():
            progress.found(Finding(kind="remat", message=f"remat {candidate.remat}: {said}"))
        if network.jit_compile and device_kind == "cpu" and (loops := _loops(network)):
            progress.found(_in_vain(candidate.remat, loops))
    progress.parameters = network.count_params()


def _loops(network: keras.Model) -> list[str]:
    return [layer.name for layer in network._flatten_layers() if isinstance(layer, keras.layers.RNN)]


def _in_vain(remat: Remat, loops: list[str]) -> Finding:
    """XLA on a CPU takes all that a loop needs before any of it runs."""
    more = f" and {len(loops) - 1} more" if len(loops) > 1 else ""
    return Finding(
        kind="remat",
        message=f"remat {remat}: under XLA on a CPU it saves nothing for loops over time, such as {loops[0]}{more}",
        hint="leave XLA out with training.jit_compile: false; there it does",
    )


class FitWitness(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """A witness to the steps of `Model.fit`."""

    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self.witness = witness

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.witness.step_begins()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.witness.step_ended(float((logs or {}).get("loss", 0.0)))  # also waits for the device

    def on_test_begin(self, logs: Any = None) -> None:
        self.witness.validation_begins()

    def on_test_end(self, logs: Any = None) -> None:
        self.witness.validation_ended()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.witness.confirms:
            checkpoint.save(self.model, self.witness.order, self.witness.progress)


def _train(order: WorkOrder, network: keras.Model, progress: Progress) -> None:
    """Two short epochs with what training does at an epoch's end, validation and a checkpoint: training that goes on
    after that needs more than training that has only begun."""
    candidate, steps = order.trial.candidate, steps_wanted(order)
    progress.stage = Stage.DATA
    if isinstance(order.trial, BucketTurns):
        batches, to_fill = trial_batch.in_buckets(order, order.trial)
        steps = max(steps, to_fill)
    else:
        batches = trial_batch.pipeline(order, candidate)
    agreement.check(order, network, batches)
    _fit(
        network,
        batches,
        steps=steps,
        epochs=2,
        witness=Witness(order, progress),
        validation=_validation(order, candidate),
    )
    progress.peak_bytes = device.memory(order)[1]


def _validation(order: WorkOrder, candidate: Candidate) -> tf.data.Dataset | None:
    size = order.training.validation_batch_size
    if size == 0:
        return None
    if isinstance(order.trial, BucketTurns):
        return trial_batch.in_buckets(order, order.trial)[0]
    return trial_batch.pipeline(order, candidate.lane.at(size or candidate.batch_size))


def _climb(order: WorkOrder, trial: Climb, network: keras.Model, progress: Progress) -> None:
    """Several sizes in one process, each measured alone; the graph is traced once, for any batch size."""
    budget_bytes = order.budget.budget_bytes
    while (size := next_size(trial.sizes, progress.points, budget_bytes, every=trial.every_size)) is not None:
        # Only a size near the edge has to show what it needs after an epoch's end too.
        near = bool(progress.points) and progress.points[-1].peak_bytes > _NEAR_SHARE * budget_bytes
        progress.points.append(_measured(order, network, progress, size, near=near))


def _go_further(order: WorkOrder, trial: Search | Confirm, network: keras.Model, progress: Progress) -> None:
    """Larger sizes after the candidate, which has run as an answer must be; up to the first that does not fit."""
    candidate, budget_bytes = trial.candidate, order.budget.budget_bytes
    step_ms = (progress.step_ms or [0.0])[-1]
    own = Point(batch_size=candidate.batch_size, peak_bytes=progress.peak_bytes or 0, step_ms=step_ms)
    from_afar = trial.further_within_s is not None
    until = math.inf if trial.further_within_s is None else time.monotonic() + trial.further_within_s
    while time.monotonic() < until:
        size = next_further(trial.further, [own, *progress.points], budget_bytes, from_afar=from_afar)
        if size is None:
            return
        progress.points.append(_measured(order, network, progress, size, near=True))


def _measured(order: WorkOrder, network: keras.Model, progress: Progress, size: int, *, near: bool) -> Point:
    """What a size needs in this process, after those that it has run."""
    candidate = order.trial.candidate.lane.at(size)
    progress.batch_size = size
    progress.stage = Stage.DATA
    progress.note(progress.reply(None))
    batches = trial_batch.pipeline(order, candidate)
    agreement.check(order, network, batches)
    device.reset_peak(order)
    _fit(
        network,
        batches,
        steps=order.settings.warmup_steps + CLIMB_STEPS + (2 if near else 0),
        epochs=2 if near else 1,
        witness=Witness(order, progress, brief=True),
        validation=_validation(order, candidate) if near else None,
    )
    peak_bytes = device.memory(order)[1]
    return Point(batch_size=size, peak_bytes=peak_bytes, step_ms=min(progress.step_ms[-2:], default=0.0))


def _fit(
    network: keras.Model,
    batches: tf.data.Dataset,
    *,
    steps: int,
    epochs: int,
    witness: Witness,
    validation: tf.data.Dataset | None,
) -> None:
    if network.built:
        # What `fit` does for a model that is not built yet. With every variable made beforehand the step is traced
        # once, not twice; the graph is the same.
        network._symbolic_build(data_batch=batches.element_spec)
    model.bring_update_near(network)
    with warnings.catch_warnings(), contextlib.suppress(OverBudget):
        warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
        network.fit(
            batches,
            steps_per_epoch=math.ceil(steps / epochs),
            epochs=epochs,
            verbose=0,
            callbacks=[FitWitness(witness)],
            validation_data=validation,
            validation_steps=None if validation is None else 1,
        )
