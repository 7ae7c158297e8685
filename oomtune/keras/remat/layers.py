"""Finding what to compute again in a model of any kind: graphs, classes, and each inside the other."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras.src.models.functional import Functional

from oomtune.errors import TrialCrashed
from oomtune.keras.remat import classes, graph, scratch
from oomtune.keras.remat.account import NOT_DENSE, NOT_REPEATABLE, Recomputed
from oomtune.keras.remat.again import is_plain, recomputed
from oomtune.keras.remat.surroundings import Surroundings, stateless

# So many layers of one class are a stack whose members are small enough as they are.
_MANY = 6


def cut(model: keras.Model, account: Recomputed) -> None:
    """Find what to compute again anywhere in the model, and make it so."""
    _Cutter(account).open(model, ends_the_model=True)


def matching(model: keras.Model, patterns: Sequence[str], account: Recomputed) -> None:
    """Compute again the layers whose names match, wherever they are."""
    inside = model._flatten_layers(include_self=False)
    chosen: dict[int, keras.Layer] = {}
    for pattern in patterns:
        found = [layer for layer in inside if fnmatch.fnmatchcase(layer.name, pattern)]
        if not found:
            raise _no_such_layer(pattern, [layer.name for layer in inside])
        chosen |= {id(layer): layer for layer in found}
    for layer in chosen.values():
        _wrap(layer, account)
    account.plan(bool(chosen))


def _no_such_layer(pattern: str, names: Sequence[str]) -> TrialCrashed:
    near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3) or list(names[:3])
    problem = TrialCrashed(
        f"remat: no layer of the model is called {pattern!r}",
        hint=f"its layers have names such as {', '.join(near)}" if near else "the model has no layers",
    )
    # Raised inside a layer that is run, any other error comes out of Keras as a new one without its hint.
    vars(problem)["_keras_call_info_injected"] = True
    return problem


class _Cutter:
    """What was found in each layer so far: one that is used twice is cut once."""

    def __init__(self, account: Recomputed) -> None:
        self.account = account
        self.graphs: dict[int, bool] = {}
        self.classes: dict[int, classes.Opened] = {}

    def open(self, layer: keras.Layer, *, ends_the_model: bool = False) -> None:
        if graph_of(layer) is not None:
            self.account.plan(self._opened_graph(layer, ends_the_model))
            return
        self._opened_class(layer, ends_the_model)
        # A step of the user's own may call these without calling the model.
        for member in _worth_opening(layer):
            if graph_of(member) is not None and self._opened_graph(member, ends_the_model=False):
                self.account.plan(True)

    def _opened_graph(self, layer: keras.Layer, ends_the_model: bool) -> bool:
        if id(layer) not in self.graphs:
            self.graphs[id(layer)] = False
            inside: list[bool] = []

            def opened(node: Any) -> bool:
                inside.append(self._opened_node(node))
                return inside[-1]

            found = graph.cut(graph_of(layer), opened, self.account, ends_the_model=ends_the_model)
            self.graphs[id(layer)] = found or any(inside)
        return self.graphs[id(layer)]

    def _opened_node(self, node: Any) -> bool:
        """Are parts inside the layer of this node computed again?"""
        layer = node.operation
        if not _is_container(layer):
            return False
        if graph_of(layer) is not None:
            return self._opened_graph(layer, ends_the_model=False)
        run, told = graph.running(node, training=True), Surroundings.told(training=True)
        look = scratch.inner(run, graph.specs(node), layer, _watched(layer), surroundings=told)
        found = look is not None and self._planned(look, look.root, ends_the_model=False)[1]
        if found:
            self._opened_class(layer, ends_the_model=False)
        return found

    def _opened_class(self, layer: keras.Layer, ends_the_model: bool) -> classes.Opened:
        if id(layer) not in self.classes:
            self.classes[id(layer)] = opened = classes.Opened(layer, self.account)
            opened.install(lambda arguments: self._plan(opened, arguments, ends_the_model))
        return self.classes[id(layer)]

    def _plan(self, opened: classes.Opened, arguments: classes.Arguments, ends_the_model: bool) -> classes.Plan:
        """What members to compute again in a run that is about to begin."""
        layer = opened.layer
        look = scratch.inner(opened.run, arguments, layer, _watched(layer), surroundings=Surroundings.here())
        if look is None:
            self.account.plan(self._wrapped_members(layer))
            return {}
        plan, found = self._planned(look, look.root, ends_the_model)
        self.account.plan(found)
        opened.watch(call.layer for call in look.root.inside)
        return plan

    def _planned(self, look: scratch.Look, whole: scratch.Call, ends_the_model: bool) -> tuple[classes.Plan, bool]:
        """The plan for a call that was looked at, and whether anything is computed again there or further inside."""
        worth = {id(member) for member in _worth_opening(whole.layer)}
        inside: list[bool] = []

        def opened(call: scratch.Call) -> bool:
            if id(call.layer) not in worth:
                return False
            if graph_of(call.layer) is not None:
                inside.append(self._opened_graph(call.layer, ends_the_model=False))
                return inside[-1]
            plan, found = self._planned(look, call, ends_the_model=False)
            if found:
                within = self._opened_class(call.layer, ends_the_model=False)
                within.plans[call.signature] = plan
                within.watch(one.layer for one in call.inside)
            inside.append(found)
            return found

        plan = classes.planned(look, whole, opened, ends_the_model=ends_the_model)
        return plan, bool(plan) or any(inside)

    def _wrapped_members(self, layer: keras.Layer) -> bool:
        """Where a layer can't be looked at: compute again each of its members that is likely to keep much."""
        found = [member for member in _members(layer) if _members(member)]
        for member in found:
            _wrap(member, self.account)
        return bool(found)


def _worth_opening(layer: keras.Layer) -> list[keras.Layer]:
    """The members that are better computed again in parts than as a whole."""
    members = [member for member in _members(layer) if _members(member)]
    alike = Counter(type(member) for member in members)
    return [member for member in members if alike[type(member)] < _MANY and _is_container(member)]


def _watched(layer: keras.Layer) -> list[keras.Layer]:
    """The layers whose calls matter in a look: its members, and theirs where it is a member that may be opened."""
    classes_inside = [member for member in _worth_opening(layer) if graph_of(member) is None]
    return [*_members(layer), *(one for member in classes_inside for one in _watched(member))]


def _is_container(layer: keras.Layer) -> bool:
    """Is it made of parts that follow each other, so that it is better cut than computed again as a whole?"""
    return graph_of(layer) is not None or _holds_a_stack(layer)


def _holds_a_stack(layer: keras.Layer) -> bool:
    """Are there, here or further inside, several layers of one class that have layers of their own?"""
    if scratch.is_trusted(layer):
        return False
    members = _members(layer)
    alike = Counter(type(member) for member in members if _members(member))
    return max(alike.values(), default=0) > 1 or any(_holds_a_stack(member) for member in members)


def _members(layer: keras.Layer) -> list[keras.Layer]:
    found: list[keras.Layer] = layer._flatten_layers(include_self=False, recursive=False)
    return found


def graph_of(layer: keras.Layer) -> Any:
    """The graph of layers that this layer is, if it is one."""
    if isinstance(layer, keras.Sequential):
        return layer._functional
    # A class of one's own may be made from a graph and still run something else.
    is_graph = isinstance(layer, Functional) and type(layer).call is Functional.call
    return layer if is_graph else None


def _wrap(layer: keras.Layer, account: Recomputed) -> None:
    """Have the whole layer computed again, unless it keeps state where the second run would not find it."""
    plain: Callable[..., Any] = layer.call
    trusted = scratch.is_trusted(layer)
    looks: dict[Any, bool] = {}

    def run(arguments: classes.Arguments) -> Any:
        args, kwargs = arguments
        return plain(*args, **kwargs)

    def repeatable(args: Any, kwargs: Any) -> bool:
        key = scratch.signature(args, kwargs)
        if key not in looks:
            seen = scratch.look(run, (args, kwargs), layer, surroundings=Surroundings.here())
            looks[key] = trusted if seen is None else seen.repeatable
        return looks[key]

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        if stateless():
            return plain(*args, **kwargs)
        reason = NOT_REPEATABLE if is_plain((args, kwargs)) else NOT_DENSE
        if reason is NOT_DENSE or not repeatable(args, kwargs):
            account.skipped(layer.name, reason)
            return plain(*args, **kwargs)
        account.ran(layer.name)
        return recomputed(run, (args, kwargs), layer)

    layer.call = call
