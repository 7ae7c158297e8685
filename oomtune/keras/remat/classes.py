"""Models that are classes: no graph says what goes from one layer to the next, and their own code runs them.

A look at one run tells which layers are called in what order, what each keeps, and what code between them keeps. From
that the calls are put into parts as the nodes of a graph are. The code stays in charge: it calls the layers, and each
call that belongs to a part is a step of it. Where a run goes another way than the one that was looked at, less may be
saved, and nothing else changes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomtune.keras.remat import cuts, graph
from oomtune.keras.remat.account import NOT_DENSE, Recomputed
from oomtune.keras.remat.again import is_plain, recomputed
from oomtune.keras.remat.scratch import Call, Look, signature, size_bytes
from oomtune.keras.remat.surroundings import stateless

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Which = tuple[int, int]
"""A layer by its identity, and which of its calls it is."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    name: str


@dataclass(frozen=True, slots=True)
class _Planned:
    part: _Part
    signature: Any
    """How the call was made that was looked at; one that is made otherwise may do something else."""


Plan = dict[Which, _Planned]


class Opened:
    """A layer whose members are computed again in parts, by a plan for each way that it is called."""

    def __init__(self, layer: keras.Layer, account: Recomputed) -> None:
        self.layer = layer
        self.account = account
        self.plain: Callable[..., Any] = layer.call
        self.plans: dict[Any, Plan] = {}
        self.plan: Plan = {}
        self.counts: Counter[int] = Counter()
        self.watched: set[int] = set()

    def install(self, make_plan: Callable[[Arguments], Plan]) -> None:
        """From here on it counts the calls of its members; `make_plan` is asked once for each way it is called."""

        @functools.wraps(self.plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if stateless():
                return self.plain(*args, **kwargs)
            key = signature(args, kwargs)
            if key not in self.plans:
                self.plans[key] = make_plan((args, kwargs))
            outer = self.plan, self.counts
            self.plan, self.counts = self.plans[key], Counter()
            try:
                return self.plain(*args, **kwargs)
            finally:
                self.plan, self.counts = outer

        self.layer.call = call

    def run(self, arguments: Arguments) -> Any:
        args, kwargs = arguments
        return self.plain(*args, **kwargs)

    def watch(self, members: Iterable[keras.Layer]) -> None:
        """Make what these do a step of the part that the plan has for them."""
        for member in members:
            if id(member) not in self.watched:
                self.watched.add(id(member))
                self._install_on(member)

    def _install_on(self, member: keras.Layer) -> None:
        plain = member.call

        def run(arguments: Arguments) -> Any:
            args, kwargs = arguments
            return plain(*args, **kwargs)

        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            part = None if stateless() else self._part(member, args, kwargs)
            if part is None:
                return plain(*args, **kwargs)
            self.account.ran(part.name)
            return recomputed(run, (args, kwargs), member, part=part)

        member.call = call

    def _part(self, member: keras.Layer, args: Any, kwargs: dict[str, Any]) -> _Part | None:
        number = self.counts[id(member)]
        self.counts[id(member)] += 1
        planned = self.plan.get((id(member), number))
        if planned is None or planned.signature != signature(args, kwargs):
            return None
        if not is_plain((args, kwargs)):
            self.account.skipped(planned.part.name, NOT_DENSE)
            return None
        return planned.part


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """A call of a member, or what code between two of them does."""

    start: int
    stop: int
    call: Call | None


def planned(look: Look, call: Call, opened: Callable[[Call], bool], *, ends_the_model: bool) -> Plan:
    """Which calls of members belong to which part that is computed again; none where it does not pay."""
    stretches = _stretches(look, call)
    steps = [_step(look, stretches, place, call, opened) for place in range(len(stretches))]
    numbers: Counter[int] = Counter()
    which: list[Which] = []
    for stretch in stretches:
        layer = None if stretch.call is None else stretch.call.layer
        which.append((id(layer), numbers[id(layer)]))
        numbers[id(layer)] += 1
    found: Plan = {}
    for part in cuts.parts(steps, ends_the_model=ends_the_model):
        calls = [(which[place], stretches[place].call) for place in range(part.start, part.stop)]
        layers = [call.layer for _, call in calls if call is not None]
        if part.again and layers:
            made = _Part(graph.named(layers))
            found |= {key: _Planned(made, call.signature) for key, call in calls if call is not None}
    return found


def _stretches(look: Look, call: Call) -> list[_Stretch]:
    found: list[_Stretch] = []
    place = call.start
    for inside in call.inside:
        if look.nodes.hands_on(place, inside.start):
            found.append(_Stretch(start=place, stop=inside.start, call=None))
        found.append(_Stretch(start=inside.start, stop=inside.stop, call=inside))
        place = inside.stop
    if look.kept_bytes(place, call.stop):
        found.append(_Stretch(start=place, stop=call.stop, call=None))
    return found


def _step(
    look: Look, stretches: Sequence[_Stretch], place: int, whole: Call, opened: Callable[[Call], bool]
) -> cuts.Step:
    stretch = stretches[place]
    kept = look.kept_bytes(stretch.start, stretch.stop)
    call = stretch.call
    if call is None:
        return cuts.Step(inside_bytes=kept, results=((kept, place + 1),), repeatable=False)
    tensors = {id(tensor): tensor for tensor in call.gives}.values()
    results = tuple((size_bytes(tensor), _last_use(look, tensor, stretches, whole)) for tensor in tensors)
    made = sum(size for size, _ in results)
    if opened(call):
        return cuts.Step(inside_bytes=made, results=results, repeatable=False)
    return cuts.Step(inside_bytes=max(kept, made), results=results, repeatable=look.is_repeatable(call))


def _last_use(look: Look, tensor: tf.Tensor, stretches: Sequence[_Stretch], whole: Call) -> int:
    """The place of the last stretch that uses it; what the whole gives is used after all of them."""
    if any(tensor is given for given in whole.gives):
        return len(stretches)
    users = [look.nodes.places[user.name] for user in tensor.consumers()]
    used = [place for place, one in enumerate(stretches) if any(one.start <= user < one.stop for user in users)]
    return max(used, default=-1)
