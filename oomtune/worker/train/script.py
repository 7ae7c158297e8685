"""Runs the user's training script, unchanged, until it has trained the steps that the trial needs.

Steps are observed in `Model.fit`, `Model.train_on_batch` and `oomtune.step()`. After the last step, the process replies
and exits from inside that call, so that the rest of the script never runs. If the spec asks to measure several calls of
`fit`, each call but the last returns after the trial's steps, and the script goes on.
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
from oomtune.keras import own_loop
from oomtune.spec.script_source import fits_of_one_model
from oomtune.worker.process import device
from oomtune.worker.process.progress import Progress
from oomtune.worker.sandbox import landlock
from oomtune.worker.train.fit import FitCallback
from oomtune.worker.train.own_loop import wait_for
from oomtune.worker.watch.step_watch import OverBudget, StepWatch, step_count

_KEY = "model.script"
_ENDLESS = 10**9
_WRITING_CALLBACKS = tuple(
    getattr(keras.callbacks, name)
    for name in ("ModelCheckpoint", "BackupAndRestore", "CSVLogger", "TensorBoard", "RemoteMonitor")
)

Finish = Callable[..., NoReturn]


def run(order: WorkOrder, script: Script, progress: Progress, reply: Finish) -> None:
    """Run the script. Return only if the script ends by itself, after all of its training."""
    candidate = order.trial.candidate
    progress.batch_size = candidate.batch_size
    progress.stage = Stage.BUILD
    path = (Path(order.folder) / script.path).resolve()
    run_of_script = _ScriptRun(order, script, progress, reply)
    _hook_into_keras(run_of_script)
    os.chdir(order.folder)
    sys.argv = [str(path), *script.filled(candidate)]
    sys.path.insert(0, str(path.parent))
    exit_text = _execute(order, script, path)
    if run_of_script.watch.steps_run == 0 and not run_of_script.fits_ended:
        output = f"{_last_output(order)}; " if exit_text is not None else ""
        raise TrialCrashed(
            f"{_KEY}: {script.path} ended{exit_text or ''} before it had trained a step",
            hint=f"{output}steps are seen in Model.fit and train_on_batch; in a loop of your own, call oomtune.step()",
        )
    if run_of_script.fits_ended and run_of_script.fits_ended < script.fits:
        raise TrialCrashed(
            f"{_KEY}.fits is {script.fits}, and {script.path} ended{exit_text or ''} after {run_of_script.fits_ended}",
            hint="set it to how often the script calls Model.fit",
        )
    run_of_script.report_other_batch_size()
    progress.peak_bytes = device.peak_bytes(order)
    progress.stage = Stage.DONE


def _execute(order: WorkOrder, script: Script, path: Path) -> str | None:
    """Run the file as `python FILE` would. Return how it called `sys.exit`, or None if it did not."""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except PermissionError as error:
        denial = landlock.explain_denial(error, f"{_KEY}: {script.path}")
        if denial is None:
            raise
        raise denial from error
    except SystemExit as error:
        exit_text = f": sys.exit({error.code!r})" if error.code is not None else ""
        if error.code not in (None, 0):
            raise TrialCrashed(f"{_KEY}: {script.path} ended by itself{exit_text}", hint=_last_output(order)) from error
        return exit_text
    return None


def _last_output(order: WorkOrder) -> str:
    """Quote the last line of the script's output, where most scripts explain a wrong argument."""
    sys.stdout.flush()
    sys.stderr.flush()
    output = Path(order.scratch) / "output.txt"
    lines = output.read_text(errors="replace").strip().splitlines() if output.exists() else []
    return f"its last output: {lines[-1]}" if lines else "run it by hand with the same arguments"


class _ScriptRun:
    """Follows the steps of a script. Ends the trial after enough of them, or if one needs too much memory."""

    def __init__(self, order: WorkOrder, script: Script, progress: Progress, reply: Finish) -> None:
        self.order = order
        self.script = script
        self.progress = progress
        self.reply = reply
        self.watch = StepWatch(order, progress)
        self.watch.began_at = time.perf_counter()
        self.steps_needed = step_count(order)
        self.fits_ended = 0
        self.is_in_fit = False
        self.largest_batch = 0
        """Samples in the largest batch so far; 0 while no batch size is known."""

    @property
    def has_another_fit(self) -> bool:
        """Whether the trial measures another call of `fit` after the current one."""
        return self.fits_ended + 1 < self.script.fits

    def begin_step(self, model: keras.Model) -> None:
        if self.watch.steps_run == 0:
            self._check_precision(model)
        self.watch.begin_step()

    def end_step(self, loss: float) -> None:
        try:
            self.watch.end_step(loss)
        except OverBudget:
            self.finish()
        except OomtuneError as error:
            self.reply(error)
        if self.watch.steps_run >= self.steps_needed and not (self.is_in_fit and self.has_another_fit):
            self.finish()

    def on_own_step(self, loss: Any) -> None:
        """Record a step of the script's own loop, and begin the next."""
        if self.watch.steps_run == 0:
            self._check_precision(None)
        self.end_step(wait_for(loss))
        self.watch.begin_step()

    def end_fit(self) -> None:
        """Finish, or go on to the next `fit`, which adds only its peak or its failure to fit."""
        if not self.has_another_fit:
            self.finish()
        self.fits_ended += 1
        self.is_in_fit = False
        # Step times and memory growth come from the first fit.
        self.watch = StepWatch(self.order, Progress(save=lambda _: None))

    def finish(self) -> NoReturn:
        self.report_other_batch_size()
        self._report_other_fits()
        self.progress.peak_bytes = device.peak_bytes(self.order)
        self.progress.stage = Stage.DONE
        self.reply()

    def report_other_batch_size(self) -> None:
        """Report a batch size other than the requested one. The trial stays valid."""
        batch_size = self.order.trial.candidate.batch_size
        if self.largest_batch in (0, batch_size):
            return
        args = self.script.args
        options = [option for option, value in pairwise(args) if value == "{batch_size}"]
        option = next(iter(options or [arg for arg in args if "{batch_size}" in arg]), "{batch_size}")
        finding = Finding(
            kind="batch_size",
            message=f"{_KEY}: {self.script.path} was given a batch size of {batch_size}, and its largest batch had "
            f"{self.largest_batch} samples",
            hint=f"check that it uses {option}, and that it has enough data for a batch of that size",
        )
        self.progress.add_finding(finding)

    def _report_other_fits(self) -> None:
        """Report unmeasured calls of `fit`: with more trainable layers, a later call needs more memory."""
        if self.script.fits > 1 or not self.is_in_fit:
            return
        calls = fits_of_one_model((Path(self.order.folder) / self.script.path).read_bytes())
        if calls > 1:
            finding = Finding(
                kind="fits",
                message=f"{_KEY}: {self.script.path} calls fit in {calls} places, and the first was measured",
                hint=f"if a later call trains more layers, set {_KEY}.fits: {calls} to measure each",
            )
            self.progress.add_finding(finding)

    def _check_precision(self, model: keras.Model | None) -> None:
        """End the trial unless the script, which sets its own policy, has set the trial's precision."""
        policy, precision = keras.config.dtype_policy().name, self.order.trial.candidate.precision
        layers = [] if model is None else model._flatten_layers()
        is_in_layers = precision != "float32" and any(layer.dtype_policy.name == precision for layer in layers)
        if policy != precision and not is_in_layers:
            error = TrialCrashed(
                f"{_KEY}: the script trains under {policy}, but this trial is for {precision}",
                hint=f"set search.precision: [{policy}], or pass {{precision}} to the script as an argument and let it "
                "set that policy",
            )
            self.reply(error)


class _ScriptCallback(FitCallback):
    """Follows `fit` in a script, and ends the trial from inside the call."""

    def __init__(self, run_of_script: _ScriptRun) -> None:
        super().__init__(run_of_script.watch)
        self.run_of_script = run_of_script
        self.steps_at_epoch_end = -1
        self.samples_before = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.run_of_script.begin_step(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.samples_before = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # Keras weights each batch's loss by its samples, so it has counted them. A custom train_step may not.
        has_own_step = type(self.model).train_step is not keras.Model.train_step
        count = None if has_own_step else getattr(getattr(self.model, "_loss_tracker", None), "count", None)
        samples = 0 if count is None else int(count)
        run_of_script = self.run_of_script
        run_of_script.largest_batch = max(run_of_script.largest_batch, samples - self.samples_before)
        self.samples_before = samples
        run_of_script.end_step(float((logs or {}).get("loss", 0.0)))
        if run_of_script.watch.steps_run >= run_of_script.steps_needed:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        steps_run = self.run_of_script.watch.steps_run
        if steps_run == self.steps_at_epoch_end:
            # The epoch had no steps, because a generator is exhausted.
            self.model.stop_training = True
            if not self.run_of_script.has_another_fit:
                self.run_of_script.finish()
        self.steps_at_epoch_end = steps_run


def _hook_into_keras(run_of_script: _ScriptRun) -> None:
    """Make Keras's training calls and `oomtune.step` report their steps to the run."""
    own_loop.listen(run_of_script.on_own_step)
    real_fit, real_step = keras.Model.fit, keras.Model.train_on_batch

    def fit(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        arguments = inspect.signature(real_fit).bind(self, *args, **kwargs).arguments
        run_of_script.is_in_fit = True
        run_of_script.progress.jit_compile = bool(self.jit_compile)
        self.steps_per_execution = 1  # otherwise several steps would look like one
        try:
            history = real_fit(**{**arguments, **_trial_arguments(arguments, run_of_script)})
        except tf.errors.OpError as error:
            run_of_script.reply(error)  # at once: a script may catch it and go on with something smaller
        run_of_script.end_fit()
        return history

    def train_on_batch(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        run_of_script.begin_step(self)
        x = inspect.signature(real_step).bind(self, *args, **kwargs).arguments["x"]
        run_of_script.largest_batch = max(run_of_script.largest_batch, len(tf.nest.flatten(x)[0]))
        try:
            returned = real_step(self, *args, **kwargs)
        except tf.errors.OpError as error:
            run_of_script.reply(error)
        run_of_script.end_step(wait_for(returned))
        return returned

    keras.Model.fit, keras.Model.train_on_batch = fit, train_on_batch


def _trial_arguments(arguments: dict[str, Any], run_of_script: _ScriptRun) -> dict[str, Any]:
    """Return the arguments of `fit` that a trial changes: short epochs with validation between, and no files."""
    is_climb = isinstance(run_of_script.order.trial, Climb)
    steps = run_of_script.steps_needed if is_climb else math.ceil(run_of_script.steps_needed / 2)
    callbacks = arguments.get("callbacks") or []
    callbacks = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    validates = arguments.get("validation_data") is not None or arguments.get("validation_split")
    return {
        "callbacks": [
            *(callback for callback in callbacks if not isinstance(callback, _WRITING_CALLBACKS)),
            _ScriptCallback(run_of_script),
        ],
        "verbose": 0,
        "epochs": _ENDLESS,
        "initial_epoch": 0,
        "steps_per_epoch": min(steps, arguments.get("steps_per_epoch") or steps),
        "validation_steps": 1 if validates else None,
        "validation_freq": 1,
    }
