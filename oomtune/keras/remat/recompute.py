"""Run one part of a model so that the backward pass recomputes it instead of keeping its activations.

The part runs as a pure function. Writes to Keras variables (batch statistics, states of random generators) are
collected and applied once, after the first run. The second run starts from the values that the first run started from,
so it draws the same dropout masks, and its writes are dropped.

A part may consist of several steps that foreign code runs one by one. Each step then remembers the steps that made its
arguments, and its gradient recomputes the whole chain from the start of the part, so nothing in between is kept. Code
that uses a tensor in between gets its gradient from the step that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from oomtune.keras.private_keras import CallState, mask_of, set_mask, stored_value
from oomtune.keras.private_tensorflow import record, tape

_ORIGIN = "_oomtune_origin"
_PLAIN = (tf.Tensor, bool, int, float, complex, str, bytes, np.ndarray, np.generic, tf.DType)


class Updates(keras.StatelessScope):  # type: ignore[misc]  # Keras ships no types
    """A scope that holds back writes to variables and remembers the values from before."""

    def __init__(self) -> None:
        super().__init__(collect_losses=True)
        self._before: dict[int, tuple[Any, tf.Tensor]] = {}

    def add_update(self, update: tuple[Any, tf.Tensor]) -> None:
        variable, _ = update
        if id(variable) not in self._before:
            self._before[id(variable)] = (variable, stored_value(variable))
        super().add_update(update)

    def states(self) -> list[tuple[Any, tf.Tensor]]:
        """Return the written variables with their values from before."""
        return list(self._before.values())

    def write(self) -> None:
        """Apply the writes."""
        for variable, _ in self.states():
            variable.assign(self.get_current_value(variable))


@dataclass(frozen=True, slots=True)
class _Slot:
    """The index of a tensor among the tensors of a structure, and the index of its mask."""

    tensor: int
    mask: int | None


class _Arguments:
    """A nested structure of arguments, taken apart into its tensors (masks included) and its form."""

    def __init__(self, structure: Any) -> None:
        leaves = [leaf for leaf in keras.tree.flatten(structure) if isinstance(leaf, tf.Tensor)]
        masks = [mask for leaf in leaves if isinstance(mask := mask_of(leaf), tf.Tensor)]
        self.tensors = list({id(tensor): tensor for tensor in [*leaves, *masks]}.values())
        indices = {id(tensor): index for index, tensor in enumerate(self.tensors)}
        # Layers may take the mask off their inputs, so record the masks now.
        slots = {id(leaf): _Slot(indices[id(leaf)], indices.get(id(mask_of(leaf)))) for leaf in leaves}
        self.form = keras.tree.map_structure(lambda leaf: slots.get(id(leaf), leaf), structure)

    def rebuild(self, tensors: Sequence[tf.Tensor]) -> Any:
        """Put other tensors into the same structure."""

        def fill(leaf: Any) -> Any:
            if not isinstance(leaf, _Slot):
                return leaf
            if leaf.mask is not None:
                set_mask(tensors[leaf.tensor], tensors[leaf.mask])
            return tensors[leaf.tensor]

        return keras.tree.map_structure(fill, self.form)


@dataclass(frozen=True, slots=True)
class _Made:
    """The origin of a tensor: a result of a step."""

    step: _Step
    index: int


@dataclass(slots=True, eq=False)
class _Step:
    """A function that ran once, with everything needed to run it again."""

    function: Callable[[Any], Any]
    arguments: _Arguments
    inputs: list[tf.Tensor | _Made]
    """Its input tensors. Results of earlier steps in the same part are not held: the second run computes them anew."""
    part: object
    call_state: CallState = field(default_factory=CallState.current)
    updates: Updates = field(default_factory=Updates)
    variables: tuple[Any, ...] = ()
    """The trainable variables that it read."""

    @classmethod
    def of(cls, function: Callable[[Any], Any], structure: Any, part: object) -> _Step:
        arguments = _Arguments(structure)
        origins = [getattr(tensor, _ORIGIN, None) for tensor in arguments.tensors]
        inputs = [
            origin if origin is not None and part is not None and origin.step.part is part else tensor
            for tensor, origin in zip(arguments.tensors, origins, strict=True)
        ]
        arguments.tensors = []
        return cls(function, arguments, inputs, part)

    def chain(self) -> list[_Step]:
        """Return all steps from the start of the part to this one, in the order they ran."""
        visited: dict[int, _Step] = {}

        def visit(step: _Step) -> None:
            if id(step) not in visited:
                for origin in step.inputs:
                    if isinstance(origin, _Made):
                        visit(origin.step)
                visited[id(step)] = step

        visit(self)
        return list(visited.values())


@dataclass(frozen=True, slots=True)
class _Run:
    """The result of one run, and the losses that layers added."""

    result: Any
    losses: list[tf.Tensor]

    @property
    def differentiable(self) -> list[tf.Tensor]:
        return [leaf for leaf in keras.tree.flatten(self.result) if _is_differentiable(leaf)] + self.losses

    def with_differentiable(self, tensors: Sequence[tf.Tensor]) -> _Run:
        """Return the same run with other tensors in place of the differentiable ones."""
        replacements = iter(tensors)

        def replace(leaf: Any) -> Any:
            if not _is_differentiable(leaf):
                return leaf
            replacement = next(replacements)
            set_mask(replacement, mask_of(leaf))
            return replacement

        result = keras.tree.map_structure(replace, self.result)
        return _Run(result, list(replacements)[: len(self.losses)])


def recomputed(function: Callable[[Any], Any], arguments: Any, owner: keras.Layer, *, part: object = None) -> Any:
    """Return `function(arguments)`, keeping only arguments and result for the backward pass.

    Of several steps with the same `part`, only the inputs of the first and the results of the last are kept. Losses
    that layers add inside are added to `owner`.
    """
    step = _Step.of(function, arguments, part)
    steps = step.chain()
    inputs = [tensor for each in steps for tensor in each.inputs if not isinstance(tensor, _Made)]
    outside = list({id(tensor): tensor for tensor in inputs}.values())
    sources = [index for index, tensor in enumerate(outside) if _is_differentiable(tensor)]
    runs: list[_Run] = []

    def run(*_: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        with record.VariableWatcher() as watcher, record.stop_recording(), step.updates:
            first = _Run(function(arguments), step.updates.losses)
        step.variables = tuple(watcher.watched_variables())
        for variable in (variable for each in steps[:-1] for variable in each.variables):
            tape.variable_accessed(variable)
        runs.append(first)

        def gradient(*upstream: tf.Tensor, variables: Sequence[Any] = ()) -> Any:
            before = [value for each in steps for _, value in each.updates.states()]
            tensors = _delay(upstream, [*outside, *before])
            watched = [tensors[index] for index in sources]
            with tf.GradientTape() as recording:
                recording.watch(watched)
                second = _run_again(steps, outside, tensors)
            targets = [*watched, *variables]
            gradients = recording.gradient(second.differentiable, targets, output_gradients=list(upstream))
            to_inputs, to_variables = gradients[: len(watched)], gradients[len(watched) :]
            return (_finish_first(to_inputs, to_variables), to_variables) if variables else gradients

        # A custom gradient needs a result, even if nothing here is differentiable.
        return first.differentiable or [tf.zeros([])], gradient

    differentiable = tf.custom_gradient(run)(*(outside[index] for index in sources))
    first = runs[0].with_differentiable(differentiable)
    step.updates.write()
    for loss in first.losses:
        owner.add_loss(loss)
    if part is not None:
        for index, leaf in enumerate(keras.tree.flatten(first.result)):
            if isinstance(leaf, tf.Tensor):
                setattr(leaf, _ORIGIN, _Made(step, index))
    return first.result


def _run_again(steps: Sequence[_Step], outside: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> _Run:
    """Run the steps a second time, on `tensors`: replacements for `outside`, then the states each step started from.

    Every step gets its own states, because code between the steps may have changed what they share.
    """
    replacements = {id(old): new for old, new in zip(outside, tensors, strict=False)}
    before = iter(tensors[len(outside) :])
    made: dict[int, list[Any]] = {}
    last = _Run(None, [])
    for step in steps:
        inputs = [
            made[id(source.step)][source.index] if isinstance(source, _Made) else replacements[id(source)]
            for source in step.inputs
        ]
        states = [(variable, next(before)) for variable, _ in step.updates.states()]
        with step.call_state.restored(), keras.StatelessScope(state_mapping=states, collect_losses=True) as scope:
            last = _Run(step.function(step.arguments.rebuild(inputs)), scope.losses)
        made[id(step)] = keras.tree.flatten(last.result)
    return last


def is_plain(structure: Any) -> bool:
    """Return whether all leaves are dense tensors or ordinary values: gradients pass through no others."""
    return all(leaf is None or isinstance(leaf, _PLAIN) for leaf in keras.tree.flatten(structure))


def _is_differentiable(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor) and (leaf.dtype.is_floating or leaf.dtype.is_complex)


def _delay(upstream: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the same values, made to depend on the incoming gradients.

    Otherwise Grappler and XLA see the second run as a repetition of the first and merge the two. XLA ignores control
    dependencies, so the dependency is arithmetic: no number is both infinite and NaN, but no optimizer knows that.
    """
    if tf.executing_eagerly():
        return list(tensors)
    firsts = [tf.reshape(tf.convert_to_tensor(tensor), [-1])[:1] for tensor in upstream]
    number = tf.reduce_max(tf.concat([tf.cast(tf.math.real(first), tf.float32) for first in firsts], 0))
    never = tf.logical_and(tf.math.is_inf(number), tf.math.is_nan(number))
    return [_unless(never, tensor) for tensor in tensors]


def _unless(never: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype == tf.bool:
        return tf.logical_or(tensor, never)
    if tensor.dtype.is_floating or tensor.dtype.is_complex or tensor.dtype.is_integer:
        return tensor - tf.cast(never, tensor.dtype)
    return tensor


def _finish_first(to_inputs: Sequence[Any], to_variables: Sequence[Any]) -> list[Any]:
    """Hold back the gradients for earlier parts until those for this part's variables are done.

    Otherwise an earlier part is recomputed while this part's recomputed activations are still held.
    """
    if tf.executing_eagerly():
        return list(to_inputs)
    ready = [leaf for leaf in tf.nest.flatten(to_variables, expand_composites=True) if leaf is not None]
    with tf.control_dependencies(ready):
        return [tf.identity(leaf) if isinstance(leaf, tf.Tensor) else leaf for leaf in to_inputs]
