"""A training script of the user's own, unchanged: run until it has trained as many steps as the trial wants.

`Model.fit`, `Model.train_on_batch` and `oomtune.step()` are where its steps are seen. When there were enough, the
process replies and leaves from inside that call, so that nothing of the script runs after it. Where several calls of
`fit` are to be measured, each but the last is ended after the trial's steps, and the script goes on.
"""

from __future__ import annotations

import inspect
import math
import os
import runpy
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import keras
import tensorflow as tf

from oomtune.domain import Climb, Finding, Script, Stage, WorkOrder
from oomtune.errors import OomtuneError, TrialCrashed
from oomtune.keras import own_loop as stepping
from oomtune.spec.script_source import fits_of_one_model
from oomtune.worker.process import device
from oomtune.worker.process.progress import Progress
from oomtune.worker.sandbox import guard
from oomtune.worker.train.fit import FitWitness
from oomtune.worker.train.own_loop import settled
from oomtune.worker.watch.step_watch import OverBudget, Witness, steps_wanted

_KEY = "model.script"
_ENDLESS = 10**9
_WRITERS = tuple(
    getattr(keras.callbacks, name)
    for name in ("ModelCheckpoint", "BackupAndRestore", "CSVLogger", "TensorBoard", "RemoteMonitor")
)

Finish = Callable[..., NoReturn]


def run(order: WorkOrder, progress: Progress, reply: Finish) -> None:
    """Run the script; returns only when it has ended by itself, which is all the training there is."""
    script, candidate = script_of(order), order.trial.candidate
    progress.batch_size = candidate.batch_size
    progress.stage = Stage.BUILD
    path = (Path(order.folder) / script.path).resolve()
    steps = _Steps(order, progress, reply)
    _take_over(steps)
    os.chdir(order.folder)
    sys.argv = [str(path), *script.filled(candidate)]
    sys.path.insert(0, str(path.parent))
    ended = said = ""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except PermissionError as error:
        denied = guard.denied(error, f"{_KEY}: {script.path}")
        if denied is None:
            raise
        raise denied from error
    except SystemExit as error:
        ended = f": sys.exit({error.code!r})" if error.code is not None else ""
        said = f"{_said(order)}; "
        if error.code not in (None, 0):
            raise TrialCrashed(f"{_KEY}: {script.path} ended by itself{ended}", hint=_said(order)) from error
    if steps.witness.steps_seen == 0 and not steps.fits_ended:
        raise TrialCrashed(
            f"{_KEY}: {script.path} ended{ended} before it had trained a step",
            hint=f"{said}its steps are seen in Model.fit and train_on_batch; in a loop of your own call oomtune.step() "
            "in it",
        )
    if steps.fits_ended and steps.fits_ended < script.fits:
        raise TrialCrashed(
            f"{_KEY}.fits is {script.fits}, and {script.path} ended{ended} after {steps.fits_ended}",
            hint="set it to how often the script calls Model.fit",
        )
    steps.tell_of_other_batches()
    progress.peak_bytes = device.memory(order)[1]
    progress.stage = Stage.DONE


def script_of(order: WorkOrder) -> Script:
    assert isinstance(order.model, Script), "only a script is run here"
    return order.model


def _said(order: WorkOrder) -> str:
    """The last line that the script printed: most say there what is wrong with their arguments."""
    sys.stdout.flush()
    sys.stderr.flush()
    output = Path(order.scratch) / "output.txt"
    lines = output.read_text(errors="replace").strip().splitlines() if output.exists() else []
    return f"it said: {lines[-1]}" if lines else "run it by hand with the same arguments"


class _Steps:
    """The steps of a script as they are seen; ends the trial when there were enough, or one was too large."""

    def __init__(self, order: WorkOrder, progress: Progress, reply: Finish) -> None:
        self.order = order
        self.progress = progress
        self.reply = reply
        self.witness = Witness(order, progress)
        self.wanted = steps_wanted(order)
        self.fits_ended = 0
        self.in_fit = False
        self.samples = 0
        """How many the largest batch had; 0 as long as that was not seen."""

    def begin(self, model: keras.Model) -> None:
        if self.witness.steps_seen == 0:
            self._check_precision(model)
        self.witness.step_begins()

    def end(self, loss: float) -> None:
        try:
            self.witness.step_ended(loss)
        except OverBudget:
            self.finish()
        except OomtuneError as error:
            self.reply(error)
        if self.witness.steps_seen >= self.wanted and not (self.in_fit and self.goes_on):
            self.finish()

    @property
    def goes_on(self) -> bool:
        """Is there another `fit` to measure after this one?"""
        return self.fits_ended + 1 < script_of(self.order).fits

    def fit_ended(self) -> None:
        """What comes next counts with its peak, or by not fitting. Time, and what grows from step to step, are those
        of the first."""
        if not self.goes_on:
            self.finish()
        self.fits_ended += 1
        self.in_fit = False
        self.witness = Witness(self.order, Progress(note=lambda _: None))

    def said(self, loss: Any) -> None:
        """A step of the script's own loop has ended; the next begins at once."""
        if self.witness.steps_seen == 0:
            self._check_precision(None)
        self.end(settled(loss))
        self.witness.step_begins()

    def tell_of_other_batches(self) -> None:
        """What was measured is the script as it is. That it trains on other batches than it was told is no failure of
        the trial, but the user should know."""
        script, asked = script_of(self.order), self.order.trial.candidate.batch_size
        if self.samples in (0, asked):
            return
        given = [argument for argument in script.args if "{batch_size}" in argument]
        after = [before for before, argument in pairwise(script.args) if argument == "{batch_size}"]
        self.progress.found(
            Finding(
                kind="batch_size",
                message=f"{_KEY}: {script.path} was told a batch size of {asked}, and its largest batch had "
                f"{self.samples} samples",
                hint=f"see that it uses {(after or given or ['{batch_size}'])[0]}, and that it has enough data for one",
            )
        )

    def tell_of_other_fits(self) -> None:
        """A model that is made trainable and fitted again needs more than in its first `fit`."""
        script = script_of(self.order)
        if script.fits > 1 or not self.in_fit:
            return
        written = fits_of_one_model((Path(self.order.folder) / script.path).read_bytes())
        if written > 1:
            self.progress.found(
                Finding(
                    kind="fits",
                    message=f"{_KEY}: {script.path} calls fit in {written} places, and the first was measured",
                    hint=f"where a later one trains more layers, set {_KEY}.fits: {written} to measure each",
                )
            )

    def finish(self) -> NoReturn:
        self.tell_of_other_batches()
        self.tell_of_other_fits()
        self.progress.peak_bytes = device.memory(self.order)[1]
        self.progress.stage = Stage.DONE
        self.reply()

    def _check_precision(self, model: keras.Model | None) -> None:
        """The policy is the script's own doing, as it will be in training: nothing sets it from outside."""
        policy, wanted = keras.config.dtype_policy().name, self.order.trial.candidate.precision
        layers = [] if model is None else model._flatten_layers()
        in_layers = wanted != "float32" and any(layer.dtype_policy.name == wanted for layer in layers)
        if policy != wanted and not in_layers:
            error = TrialCrashed(
                f"{_KEY}: the script trains under {policy}, and this trial is to be under {wanted}",
                hint=f"set search.precision: [{policy}], or give the script {{precision}} as an argument, and let it "
                "set that policy",
            )
            self.reply(error)


class _ScriptWitness(FitWitness):
    """A witness to `fit` in a script, which ends the trial from inside the call."""

    def __init__(self, steps: _Steps) -> None:
        super().__init__(steps.witness)
        self.steps = steps
        self.seen_before = -1
        self.samples_before = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.steps.begin(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.samples_before = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # Keras weighs the loss of each batch by its samples, and so has counted them. A step of one's own need not.
        own_step = type(self.model).train_step is not keras.Model.train_step
        counted = None if own_step else getattr(getattr(self.model, "_loss_tracker", None), "count", None)
        in_epoch = 0 if counted is None else int(counted)
        self.steps.samples = max(self.steps.samples, in_epoch - self.samples_before)
        self.samples_before = in_epoch
        self.steps.end(float((logs or {}).get("loss", 0.0)))
        if self.steps.witness.steps_seen >= self.steps.wanted:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.steps.witness.steps_seen == self.seen_before:
            # A generator that is used up gives no more.
            self.model.stop_training = True
            if not self.steps.goes_on:
                self.steps.finish()
        self.seen_before = self.steps.witness.steps_seen


def _take_over(steps: _Steps) -> None:
    """From here on the training calls of Keras, and ours, tell `steps`."""
    stepping.listen(steps.said)
    steps.witness.began = time.perf_counter()
    real_fit, real_step = keras.Model.fit, keras.Model.train_on_batch

    def fit(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(real_fit).bind(self, *args, **kwargs).arguments
        steps.in_fit = True
        steps.progress.jit_compile = bool(self.jit_compile)
        self.steps_per_execution = 1  # or several steps would be seen as one
        try:
            history = real_fit(**{**given, **_as_a_trial(given, steps)})
        except tf.errors.OpError as error:
            steps.reply(error)  # at once: a script may catch it and train on with something smaller
        steps.fit_ended()
        return history

    def train_on_batch(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        steps.begin(self)
        x = inspect.signature(real_step).bind(self, *args, **kwargs).arguments["x"]
        steps.samples = max(steps.samples, len(tf.nest.flatten(x)[0]))
        try:
            returned = real_step(self, *args, **kwargs)
        except tf.errors.OpError as error:
            steps.reply(error)
        steps.end(settled(returned))
        return returned

    keras.Model.fit, keras.Model.train_on_batch = fit, train_on_batch


def _as_a_trial(given: dict[str, Any], steps: _Steps) -> dict[str, Any]:
    """What `fit` is told otherwise: two short epochs' worth of steps with validation between, and nothing of its
    own written."""
    half = math.ceil(steps.wanted / 2)
    in_an_epoch = steps.wanted if isinstance(steps.order.trial, Climb) else half
    callbacks = given.get("callbacks") or []
    callbacks = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    validates = given.get("validation_data") is not None or given.get("validation_split")
    return {
        "callbacks": [one for one in callbacks if not isinstance(one, _WRITERS)] + [_ScriptWitness(steps)],
        "verbose": 0,
        "epochs": _ENDLESS,
        "initial_epoch": 0,
        "steps_per_epoch": min(in_an_epoch, given.get("steps_per_epoch") or in_an_epoch),
        "validation_steps": 1 if validates else None,
        "validation_freq": 1,
    }
