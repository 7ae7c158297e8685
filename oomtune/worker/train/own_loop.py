"""Trains with the user's own step function. Each call is one step, whatever loops, tapes and optimizers it uses."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from oomtune.domain import Climb, Stage, TrainStep, WorkOrder
from oomtune.errors import TrialCrashed
from oomtune.worker.build import user_code
from oomtune.worker.build.layers import with_length
from oomtune.worker.build.model import refuse_unused_length
from oomtune.worker.data import agreement, trial_batch
from oomtune.worker.data.source import SIDES
from oomtune.worker.process import device
from oomtune.worker.process.exceptions import reason
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch.step_watch import OverBudget, StepWatch, step_count

Step = Callable[..., Any]
_KEY = "model.train_step"


def run(order: WorkOrder, train_step: TrainStep, progress: Progress) -> None:
    """Carry out the trial, or one size of a climb. `progress` holds the observations, even if this raises."""
    progress.batch_size = order.trial.candidate.batch_size
    progress.stage = Stage.BUILD
    step, validate = _load_steps(order, train_step)
    progress.stage = Stage.DATA
    watch = StepWatch(order, progress)
    with contextlib.suppress(OverBudget):
        for steps in _steps_per_epoch(order):
            _run_epoch(order, train_step.factory, watch, step, steps)
            if validate is not None and not isinstance(order.trial, Climb):
                watch.begin_validation()
                wait_for(validate(*next(_arguments(order, train_step.factory, validate))))
                watch.end_validation()
    progress.peak_bytes = device.peak_bytes(order)
    progress.stage = Stage.DONE


def _steps_per_epoch(order: WorkOrder) -> list[int]:
    """Return the steps of each epoch: two short ones, so that training also continues past the end of an epoch."""
    steps = step_count(order)
    return [steps] if isinstance(order.trial, Climb) else [math.ceil(steps / 2), steps // 2]


def _run_epoch(order: WorkOrder, name: str, watch: StepWatch, step: Step, steps: int) -> None:
    """Run steps on the data from its first batch on, as the user's own loop would."""
    all_arguments = _arguments(order, name, step)
    for _ in range(steps):
        arguments = next(all_arguments)
        watch.begin_step()
        returned = step(*arguments) if watch.steps_run else _run_first_step(order, name, step, arguments)
        watch.end_step(wait_for(returned))


def _run_first_step(order: WorkOrder, name: str, step: Step, arguments: tuple[Any, ...]) -> Any:
    """Run the step. Add the data's shapes to any error that data of the wrong shape can cause."""
    try:
        return step(*arguments)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        if not arguments:
            raise
        inputs, targets, *_ = arguments if len(arguments) > 1 else arguments[0]
        raise TrialCrashed(
            f"{_KEY}: {name} failed in its first step: {type(error).__name__}: {reason(error)}",
            hint=f"{agreement.describe_shapes(order, inputs, targets)}; does the step take these?",
        ) from error


def _load_steps(order: WorkOrder, train_step: TrainStep) -> tuple[Step, Step | None]:
    """Return the factory's training step, and its validation step if it returns a pair."""
    name = train_step.factory
    factory = user_code.load(name, order.folder, _KEY)
    refuse_unused_length(order)
    candidate = order.trial.candidate
    keras.config.set_dtype_policy(candidate.precision)  # importing the module may have set another
    made = factory(**user_code.arguments_for(factory, with_length(train_step.args, candidate), candidate, name))
    step, validate = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not callable(step) or not (validate is None or callable(validate)):
        kinds = [type(one).__name__ for one in (made if isinstance(made, tuple) else (made,))]
        raise TrialCrashed(
            f"{_KEY}: {name} returned {' and '.join(kinds)}, not a step",
            hint="return a function that runs one step, or a pair of a training step and a validation step",
        )
    return step, validate


def _arguments(order: WorkOrder, name: str, step: Step) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments for each call: none, the batch, or as many of its inputs, targets and weights as needed."""
    count, most = _argument_range(step)
    if count == 0:
        while True:
            yield ()
    available = len(SIDES)
    if count <= available:
        if order.dataset is None:
            raise TrialCrashed(
                f"{_KEY}: the step takes {count} argument{'s' * (count > 1)}, and the spec has no dataset to fill them",
                hint="add a dataset, or make the batch inside the factory",
            )
        batches = trial_batch.pipeline(order, order.trial.candidate)
        available = len(batches.element_spec)
    if count > available:
        raise TrialCrashed(
            f"{_KEY}: the step of {name} takes {count} arguments, more than a batch can fill",
            hint="take no argument, the batch, or its inputs and its targets; make the rest inside the factory",
        )
    for batch in batches:
        yield (batch,) if most == 1 else tuple(batch[:most])


def _argument_range(step: Step) -> tuple[int, int | None]:
    """Return how many arguments a step needs, and at most how many it gets; None means no upper limit."""
    parameters = inspect.signature(getattr(step, "python_function", step)).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 2, None  # the inputs and the targets, and the weights if there are any
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(parameter.kind in plain and parameter.default is parameter.empty for parameter in parameters)
    return count, count


def wait_for(returned: Any) -> float:
    """Wait for the values that a step returned. Return the first number that is not finite, else the first number."""
    arrays = [np.asarray(value) for value in tf.nest.flatten(returned) if value is not None]
    numbers = [array.astype(np.float64).ravel() for array in arrays if array.dtype.kind in "iuf" and array.size]
    if not numbers:
        return 0.0
    not_finite = next((array[~np.isfinite(array)][0] for array in numbers if not np.isfinite(array).all()), None)
    return float(numbers[0][0] if not_finite is None else not_finite)
