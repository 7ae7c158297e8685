"""Rematerialise a model that is a class: its code, not a graph, decides which layer runs when.

One trial run shows which layers are called in what order, and what each call and the code between them keeps. The calls
are then grouped into parts, as the nodes of a graph are. The model's code stays in charge: it calls the layers, and
each call that belongs to a part is a step of that part. If a later run takes another path, less memory may be saved and
nothing else changes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomtune.keras.private_keras import is_stateless
from oomtune.keras.remat import cuts, graphs
from oomtune.keras.remat.account import NOT_DENSE, Recomputed
from oomtune.keras.remat.recompute import is_plain, recomputed
from oomtune.keras.remat.trial_run import Call, TrialRun, signature, size_bytes

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
CallKey = tuple[int, int]
"""The id of a layer, and the index of one of its calls."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    name: str


@dataclass(frozen=True, slots=True)
class _PlannedCall:
    part: _Part
    signature: Any
    """How the layer was called in the trial run. A call with another signature may do something else."""


Plan = dict[CallKey, _PlannedCall]


class OpenedLayer:
    """A layer whose members are recomputed in parts, with one plan for each way that it is called."""

    def __init__(self, layer: keras.Layer, account: Recomputed) -> None:
        self.layer = layer
        self.plans: dict[Any, Plan] = {}
        self._account = account
        self._plain: Callable[..., Any] = layer.call
        self._plan: Plan = {}
        self._counts: Counter[int] = Counter()
        self._watched: set[int] = set()

    def install(self, make_plan: Callable[[Arguments], Plan]) -> None:
        """Follow the plan in every call from now on; `make_plan` is called once for each way the layer is called."""

        @functools.wraps(self._plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_stateless():
                return self._plain(*args, **kwargs)
            key = signature(args, kwargs)
            if key not in self.plans:
                self.plans[key] = make_plan((args, kwargs))
            outer = self._plan, self._counts
            self._plan, self._counts = self.plans[key], Counter()
            try:
                return self._plain(*args, **kwargs)
            finally:
                self._plan, self._counts = outer

        self.layer.call = call

    def run(self, arguments: Arguments) -> Any:
        """Call the layer without recomputation."""
        args, kwargs = arguments
        return self._plain(*args, **kwargs)

    def watch(self, members: Iterable[keras.Layer]) -> None:
        """Make each call of these members a step of the part that the plan assigns to it."""
        for member in members:
            if id(member) not in self._watched:
                self._watched.add(id(member))
                self._install_on(member)

    def _install_on(self, member: keras.Layer) -> None:
        plain = member.call

        def run(arguments: Arguments) -> Any:
            args, kwargs = arguments
            return plain(*args, **kwargs)

        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            part = None if is_stateless() else self._next_part(member, args, kwargs)
            if part is None:
                return plain(*args, **kwargs)
            self._account.ran(part.name)
            return recomputed(run, (args, kwargs), member, part=part)

        member.call = call

    def _next_part(self, member: keras.Layer, args: Any, kwargs: dict[str, Any]) -> _Part | None:
        number = self._counts[id(member)]
        self._counts[id(member)] += 1
        planned = self._plan.get((id(member), number))
        if planned is None or planned.signature != signature(args, kwargs):
            return None
        if not is_plain((args, kwargs)):
            self._account.skipped(planned.part.name, NOT_DENSE)
            return None
        return planned.part


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """A call of a member, or the code between two calls."""

    start: int
    stop: int
    call: Call | None


def make_plan(run: TrialRun, call: Call, is_opened: Callable[[Call], bool], *, ends_the_model: bool) -> Plan:
    """Assign calls of members to parts that are recomputed. The plan is empty if recomputing does not pay."""
    stretches = _stretches(run, call)
    steps = [_step(run, stretches, index, call, is_opened) for index in range(len(stretches))]
    numbers: Counter[int] = Counter()
    keys: list[CallKey] = []
    for stretch in stretches:
        layer = None if stretch.call is None else stretch.call.layer
        keys.append((id(layer), numbers[id(layer)]))
        numbers[id(layer)] += 1
    plan: Plan = {}
    for part in cuts.parts(steps, ends_the_model=ends_the_model):
        calls = [(keys[index], stretches[index].call) for index in range(part.start, part.stop)]
        layers = [call.layer for _, call in calls if call is not None]
        if part.again and layers:
            named_part = _Part(graphs.name_part(layers))
            plan |= {key: _PlannedCall(named_part, call.signature) for key, call in calls if call is not None}
    return plan


def _stretches(run: TrialRun, call: Call) -> list[_Stretch]:
    stretches: list[_Stretch] = []
    position = call.start
    for inner in call.calls:
        if run.operations.hand_on_floats(position, inner.start):
            stretches.append(_Stretch(start=position, stop=inner.start, call=None))
        stretches.append(_Stretch(start=inner.start, stop=inner.stop, call=inner))
        position = inner.stop
    if run.kept_bytes(position, call.stop):
        stretches.append(_Stretch(start=position, stop=call.stop, call=None))
    return stretches


def _step(
    run: TrialRun, stretches: Sequence[_Stretch], index: int, whole: Call, is_opened: Callable[[Call], bool]
) -> cuts.Step:
    stretch = stretches[index]
    kept_bytes = run.kept_bytes(stretch.start, stretch.stop)
    call = stretch.call
    if call is None:
        return cuts.Step(inside_bytes=kept_bytes, results=((kept_bytes, index + 1),), repeatable=False)
    tensors = {id(tensor): tensor for tensor in call.outputs}.values()
    results = tuple((size_bytes(tensor), _last_use(run, tensor, stretches, whole)) for tensor in tensors)
    results_bytes = sum(size for size, _ in results)
    if is_opened(call):
        return cuts.Step(inside_bytes=results_bytes, results=results, repeatable=False)
    return cuts.Step(inside_bytes=max(kept_bytes, results_bytes), results=results, repeatable=run.is_repeatable(call))


def _last_use(run: TrialRun, tensor: tf.Tensor, stretches: Sequence[_Stretch], whole: Call) -> int:
    """Return the index of the last stretch that uses a tensor. Outputs of the whole are used after all stretches."""
    if any(tensor is output for output in whole.outputs):
        return len(stretches)
    users = [run.operations.indices[user.name] for user in tensor.consumers()]
    used = [
        index for index, stretch in enumerate(stretches) if any(stretch.start <= user < stretch.stop for user in users)
    ]
    return max(used, default=-1)
