"""One part of a model, computed again in the backward pass instead of being kept.

The part runs as a pure function: what it would have written to Keras variables (batch statistics, the states of random
generators) is collected and written once, after the first run. The second run starts from the values that the first
one found, so it draws the same dropout masks, and what it would write is dropped.

A part may consist of several steps that are run one by one, by code that is not ours. Each step then remembers what
made its arguments, and its gradient computes all of that again, from where the part began: nothing has to be kept in
between. Whoever else uses what lies in between gets its gradient from the step that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record, tape

from oomtune.keras.remat.surroundings import Surroundings, mask_of, set_mask, stored_value

_ORIGIN = "_oomtune_origin"
_PLAIN = (tf.Tensor, bool, int, float, complex, str, bytes, np.ndarray, np.generic, tf.DType)


class Updates(keras.StatelessScope):  # type: ignore[misc]  # Keras ships no types
    """A scope that nothing leaves: what would be written to variables is held, with the values from before."""

    def __init__(self) -> None:
        super().__init__(collect_losses=True)
        self.before: dict[int, tuple[Any, tf.Tensor]] = {}

    def add_update(self, update: tuple[Any, tf.Tensor]) -> None:
        variable, _ = update
        if id(variable) not in self.before:
            self.before[id(variable)] = (variable, stored_value(variable))
        super().add_update(update)

    def states(self) -> list[tuple[Any, tf.Tensor]]:
        """The variables that were written to, with their values from before."""
        return list(self.before.values())

    def write(self) -> None:
        for variable, _ in self.states():
            variable.assign(self.get_current_value(variable))


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place of a tensor among those of a structure, and that of its mask."""

    tensor: int
    mask: int | None


class _Arguments:
    """Any structure with tensors in it; their masks belong to it."""

    def __init__(self, structure: Any) -> None:
        leaves = [leaf for leaf in keras.tree.flatten(structure) if isinstance(leaf, tf.Tensor)]
        masks = [mask for leaf in leaves if isinstance(mask := mask_of(leaf), tf.Tensor)]
        self.tensors = list({id(tensor): tensor for tensor in [*leaves, *masks]}.values())
        places = {id(tensor): place for place, tensor in enumerate(self.tensors)}
        # Layers may take the mask off a tensor that they are given.
        slots = {id(leaf): _Slot(places[id(leaf)], places.get(id(mask_of(leaf)))) for leaf in leaves}
        self.form = keras.tree.map_structure(lambda leaf: slots.get(id(leaf), leaf), structure)

    def filled(self, tensors: Sequence[tf.Tensor]) -> Any:
        """The same structure with these tensors in the places of its own."""

        def fill(leaf: Any) -> Any:
            if not isinstance(leaf, _Slot):
                return leaf
            if leaf.mask is not None:
                set_mask(tensors[leaf.tensor], tensors[leaf.mask])
            return tensors[leaf.tensor]

        return keras.tree.map_structure(fill, self.form)


@dataclass(frozen=True, slots=True)
class _Made:
    """Where a tensor comes from: which of the results of which step."""

    step: _Step
    place: int


@dataclass(slots=True, eq=False)
class _Step:
    """A function that was run once, with all that it takes to run it again."""

    function: Callable[[Any], Any]
    arguments: _Arguments
    takes: list[tf.Tensor | _Made]
    """The tensors among its arguments; one that a step of the same part made is not held, it will be made again."""
    part: object
    surroundings: Surroundings = field(default_factory=Surroundings.here)
    updates: Updates = field(default_factory=Updates)
    variables: tuple[Any, ...] = ()
    """Those that are trained, of the ones that it reads."""

    @classmethod
    def of(cls, function: Callable[[Any], Any], structure: Any, part: object) -> _Step:
        arguments = _Arguments(structure)
        origins = [getattr(tensor, _ORIGIN, None) for tensor in arguments.tensors]
        takes = [
            origin if origin is not None and part is not None and origin.step.part is part else tensor
            for tensor, origin in zip(arguments.tensors, origins, strict=True)
        ]
        arguments.tensors = []
        return cls(function, arguments, takes, part)

    def chain(self) -> list[_Step]:
        """The steps that lead here from where the part begins, in the order they ran in, with this one at the end."""
        found: dict[int, _Step] = {}

        def visit(step: _Step) -> None:
            if id(step) not in found:
                for origin in step.takes:
                    if isinstance(origin, _Made):
                        visit(origin.step)
                found[id(step)] = step

        visit(self)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class _Run:
    """What came of one run: the function's own result, and the losses that layers added."""

    result: Any
    losses: list[tf.Tensor]

    @property
    def differentiable(self) -> list[tf.Tensor]:
        return [leaf for leaf in keras.tree.flatten(self.result) if _is_differentiable(leaf)] + self.losses

    def replaced(self, differentiable: Sequence[tf.Tensor]) -> _Run:
        """The same with other tensors where a gradient may come from."""
        others = iter(differentiable)

        def replace(leaf: Any) -> Any:
            if not _is_differentiable(leaf):
                return leaf
            other = next(others)
            set_mask(other, mask_of(leaf))
            return other

        result = keras.tree.map_structure(replace, self.result)
        return _Run(result, list(others)[: len(self.losses)])


def recomputed(function: Callable[[Any], Any], arguments: Any, owner: keras.Layer, *, part: object = None) -> Any:
    """`function(arguments)`, of which only arguments and result are kept for the backward pass; of steps with the same
    `part`, only what goes into the first of them and comes out of the last.

    Losses that layers add inside are added to `owner`.
    """
    step = _Step.of(function, arguments, part)
    steps = step.chain()
    outside = list({id(one): one for each in steps for one in each.takes if not isinstance(one, _Made)}.values())
    sources = [place for place, tensor in enumerate(outside) if _is_differentiable(tensor)]
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
            tensors = _after(upstream, [*outside, *before])
            watched = [tensors[place] for place in sources]
            with tf.GradientTape() as recording:
                recording.watch(watched)
                second = _again(steps, outside, tensors)
            wanted = [*watched, *variables]
            found = recording.gradient(second.differentiable, wanted, output_gradients=list(upstream))
            onwards, ended = found[: len(watched)], found[len(watched) :]
            return (_once_done(onwards, ended), ended) if variables else found

        # Something has to come out of it, also where no gradient can go in.
        return first.differentiable or [tf.zeros([])], gradient

    differentiable = tf.custom_gradient(run)(*(outside[place] for place in sources))
    first = runs[0].replaced(differentiable)
    step.updates.write()
    for loss in first.losses:
        owner.add_loss(loss)
    if part is not None:
        for place, leaf in enumerate(keras.tree.flatten(first.result)):
            if isinstance(leaf, tf.Tensor):
                setattr(leaf, _ORIGIN, _Made(step, place))
    return first.result


def _again(steps: Sequence[_Step], outside: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> _Run:
    """Run the steps a second time, from other tensors in the places of `outside`, followed by the states that each
    step found. Each begins with its own: code between them may have changed what they share."""
    known = {id(old): new for old, new in zip(outside, tensors, strict=False)}
    before = iter(tensors[len(outside) :])
    made: dict[int, list[Any]] = {}
    last = _Run(None, [])
    for step in steps:
        given = [made[id(one.step)][one.place] if isinstance(one, _Made) else known[id(one)] for one in step.takes]
        states = [(variable, next(before)) for variable, _ in step.updates.states()]
        with step.surroundings.again(), keras.StatelessScope(state_mapping=states, collect_losses=True) as scope:
            last = _Run(step.function(step.arguments.filled(given)), scope.losses)
        made[id(step)] = keras.tree.flatten(last.result)
    return last


def is_plain(structure: Any) -> bool:
    """Are all its leaves dense tensors, or values that hold none? A gradient finds its way to these only."""
    return all(leaf is None or isinstance(leaf, _PLAIN) for leaf in keras.tree.flatten(structure))


def _is_differentiable(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor) and (leaf.dtype.is_floating or leaf.dtype.is_complex)


def _after(upstream: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same values, but as far as a compiler can see not known before the gradients that arrive.

    Without it the second run is the first one over again to grappler and XLA, and both are merged. XLA does not heed
    control dependencies, so it must be arithmetic: no number is both infinite and none, but no optimizer knows.
    """
    if tf.executing_eagerly():
        return list(tensors)
    firsts = [tf.reshape(tf.convert_to_tensor(one), [-1])[:1] for one in upstream]
    number = tf.reduce_max(tf.concat([tf.cast(tf.math.real(one), tf.float32) for one in firsts], 0))
    never = tf.logical_and(tf.math.is_inf(number), tf.math.is_nan(number))
    return [_unless(never, tensor) for tensor in tensors]


def _once_done(onwards: Sequence[Any], ended: Sequence[Any]) -> list[Any]:
    """The gradients that go on to earlier parts, but not before those that end here are there: else an earlier part is
    computed again while what this one was computed from is still held."""
    if tf.executing_eagerly():
        return list(onwards)
    with tf.control_dependencies([one for one in tf.nest.flatten(ended, expand_composites=True) if one is not None]):
        return [tf.identity(one) if isinstance(one, tf.Tensor) else one for one in onwards]


def _unless(never: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype == tf.bool:
        return tf.logical_or(tensor, never)
    if tensor.dtype.is_floating or tensor.dtype.is_complex or tensor.dtype.is_integer:
        return tensor - tf.cast(never, tensor.dtype)
    return tensor
