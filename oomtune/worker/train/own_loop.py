"""Training by a step of the user's own: whatever loop, tapes and optimizers it has, one call is one step."""

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
from oomtune.worker.process.error_reasons import reason
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch.step_watch import OverBudget, Witness, steps_wanted

Step = Callable[..., Any]
_KEY = "model.train_step"
_MOST_ARGUMENTS = len(SIDES)


def run(order: WorkOrder, progress: Progress) -> None:
    """Carry out the trial, or one size of a climb; what was seen is in `progress`, also when this raises."""
    candidate = order.trial.candidate
    progress.batch_size = candidate.batch_size
    progress.stage = Stage.BUILD
    step, validate = _made(order)
    progress.stage = Stage.DATA
    witness = Witness(order, progress)
    with contextlib.suppress(OverBudget):
        for steps in _epochs(order):
            _epoch(order, witness, step, steps)
            if validate is not None and not isinstance(order.trial, Climb):
                witness.validation_begins()
                settled(validate(*next(_feeder(order, validate))))
                witness.validation_ended()
    progress.peak_bytes = device.memory(order)[1]
    progress.stage = Stage.DONE


def _epochs(order: WorkOrder) -> list[int]:
    """How many steps each epoch has: two short ones, so that training is also seen to go on after an epoch's end."""
    steps = steps_wanted(order)
    return [steps] if isinstance(order.trial, Climb) else [math.ceil(steps / 2), steps // 2]


def _epoch(order: WorkOrder, witness: Witness, step: Step, steps: int) -> None:
    """The data is begun anew, as a loop of the user's own would."""
    feed = _feeder(order, step)
    for _ in range(steps):
        given = next(feed)
        witness.step_begins()
        returned = step(*given) if witness.steps_seen else _first_step(order, step, given)
        witness.step_ended(settled(returned))


def _first_step(order: WorkOrder, step: Step, given: tuple[Any, ...]) -> Any:
    """The first step; where it raises what data of the wrong shape does, it is said what the data is."""
    try:
        return step(*given)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        if not given:
            raise
        inputs, targets, *_ = given if len(given) > 1 else given[0]
        raise TrialCrashed(
            f"{_KEY}: {train_step_of(order).factory} failed in its first step: {type(error).__name__}: {reason(error)}",
            hint=f"{agreement.describe_shapes(order, inputs, targets)}; are these what the step takes?",
        ) from error


def _made(order: WorkOrder) -> tuple[Step, Step | None]:
    """The step that the factory returns, and the validation step if it returns a pair."""
    train_step = train_step_of(order)
    name = train_step.factory
    factory = user_code.load(name, order.folder, _KEY)
    refuse_unused_length(order)
    candidate = order.trial.candidate
    keras.config.set_dtype_policy(candidate.precision)  # whatever the module has set
    made = factory(**user_code.arguments_for(factory, with_length(train_step.args, candidate), candidate, name))
    step, validate = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not callable(step) or not (validate is None or callable(validate)):
        raise TrialCrashed(
            f"{_KEY}: {name} returned {_kinds(made)}, not a step",
            hint="return a function that runs one step, or a pair of that and one that validates",
        )
    return step, validate


def train_step_of(order: WorkOrder) -> TrainStep:
    assert isinstance(order.model, TrainStep), "only a train_step is run here"
    return order.model


def _kinds(made: Any) -> str:
    return " and ".join(type(one).__name__ for one in made) if isinstance(made, tuple) else type(made).__name__


def _feeder(order: WorkOrder, step: Step) -> Iterator[tuple[Any, ...]]:
    """The arguments for each call: none, the batch, or its inputs, its targets and their weights, as the step takes
    them."""
    takes = _required(step)
    if takes > _MOST_ARGUMENTS:
        raise _takes_too_many(order, takes)
    if takes == 0:
        while True:
            yield ()
    if order.dataset is None:
        raise TrialCrashed(
            f"{_KEY}: the step takes {takes} argument{'s' * (takes > 1)}, and the spec has no dataset to fill them",
            hint="add a dataset, or make the batch inside the factory",
        )
    batches = trial_batch.pipeline(order, order.trial.candidate)
    if takes > len(batches.element_spec):
        raise _takes_too_many(order, takes)
    most = None if _takes_any_number(step) else takes
    for batch in batches:
        yield (batch,) if most == 1 else tuple(batch[:most])


def _takes_too_many(order: WorkOrder, takes: int) -> TrialCrashed:
    return TrialCrashed(
        f"{_KEY}: the step of {train_step_of(order).factory} takes {takes} arguments, more than there are to give",
        hint="it is given nothing, the batch, or its inputs and its targets; make the rest inside the factory",
    )


def _required(step: Step) -> int:
    """How many arguments the step has to be given."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if _takes_any_number(step):
        return 2  # the inputs and the targets
    return sum(parameter.kind in plain and parameter.default is parameter.empty for parameter in _parameters(step))


def _takes_any_number(step: Step) -> bool:
    return any(parameter.kind is parameter.VAR_POSITIONAL for parameter in _parameters(step))


def _parameters(step: Step) -> list[inspect.Parameter]:
    return list(inspect.signature(getattr(step, "python_function", step)).parameters.values())


def settled(returned: Any) -> float:
    """Wait for what a step returned; the first of its numbers that is not finite, or else the first of them."""
    arrays = [np.asarray(value) for value in tf.nest.flatten(returned) if value is not None]
    numbers = [array.astype(np.float64).ravel() for array in arrays if array.dtype.kind in "iuf" and array.size]
    if not numbers:
        return 0.0
    wrong = next((array[~np.isfinite(array)][0] for array in numbers if not np.isfinite(array).all()), None)
    return float(numbers[0][0] if wrong is None else wrong)
