"""Choose what to recompute in any model: graphs of layers, classes, and each nested in the other."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import keras

from oomtune.errors import TrialCrashed
from oomtune.keras.private_keras import CallState, Functional, is_stateless
from oomtune.keras.remat import classes, graphs, trial_run
from oomtune.keras.remat.account import NOT_DENSE, NOT_REPEATABLE, Recomputed
from oomtune.keras.remat.recompute import is_plain, recomputed

# This many layers of one class form a stack. Its members are small enough to recompute as a whole.
_STACK = 6


def recompute_worthwhile_parts(model: keras.Model, account: Recomputed) -> None:
    """Find the parts where recomputing pays, anywhere in the model, and recompute them."""
    _Cutter(account).open(model, ends_the_model=True)


def recompute_matching_layers(model: keras.Model, patterns: Sequence[str], account: Recomputed) -> None:
    """Recompute the layers whose names match a pattern, wherever they are."""
    layers = model._flatten_layers(include_self=False)
    chosen: dict[int, keras.Layer] = {}
    for pattern in patterns:
        matches = [layer for layer in layers if fnmatch.fnmatchcase(layer.name, pattern)]
        if not matches:
            raise _no_such_layer(pattern, [layer.name for layer in layers])
        chosen |= {id(layer): layer for layer in matches}
    for layer in chosen.values():
        _recompute_whole(layer, account)
    account.plan(bool(chosen))


def _no_such_layer(pattern: str, names: Sequence[str]) -> TrialCrashed:
    near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3) or list(names[:3])
    problem = TrialCrashed(
        f"remat: no layer of the model is called {pattern!r}",
        hint=f"its layers have names such as {', '.join(near)}" if near else "the model has no layers",
    )
    # Without this mark, Keras replaces an error raised inside a layer by a new one that loses the hint.
    vars(problem)["_keras_call_info_injected"] = True
    return problem


class _Cutter:
    """Remembers the decision for each layer, so that a layer that is used twice is cut once."""

    def __init__(self, account: Recomputed) -> None:
        self._account = account
        self._graphs: dict[int, bool] = {}
        self._classes: dict[int, classes.OpenedLayer] = {}

    def open(self, layer: keras.Layer, *, ends_the_model: bool = False) -> None:
        """Recompute the worthwhile parts inside a layer."""
        if graph_of(layer) is not None:
            self._account.plan(self._open_graph(layer, ends_the_model))
            return
        self._open_class(layer, ends_the_model)
        # A training step of the user's own may call these members without calling the model.
        for member in _members_to_open(layer):
            if graph_of(member) is not None and self._open_graph(member, ends_the_model=False):
                self._account.plan(True)

    def _open_graph(self, layer: keras.Layer, ends_the_model: bool) -> bool:
        if id(layer) not in self._graphs:
            self._graphs[id(layer)] = False
            inside: list[bool] = []

            def is_opened(node: Any) -> bool:
                inside.append(self._open_node(node))
                return inside[-1]

            has_parts = graphs.recompute_in_parts(
                graph_of(layer), is_opened, self._account, ends_the_model=ends_the_model
            )
            self._graphs[id(layer)] = has_parts or any(inside)
        return self._graphs[id(layer)]

    def _open_node(self, node: Any) -> bool:
        """Return whether parts inside the node's layer are recomputed."""
        layer = node.operation
        if not _is_container(layer):
            return False
        if graph_of(layer) is not None:
            return self._open_graph(layer, ends_the_model=False)
        function, state = graphs.node_function(node, training=True), CallState.inside_model(training=True)
        run = trial_run.run_once(function, graphs.input_specs(node), layer, _watched(layer), call_state=state)
        has_parts = run is not None and self._plan(run, run.root, ends_the_model=False)[1]
        if has_parts:
            self._open_class(layer, ends_the_model=False)
        return has_parts

    def _open_class(self, layer: keras.Layer, ends_the_model: bool) -> classes.OpenedLayer:
        if id(layer) not in self._classes:
            self._classes[id(layer)] = opened = classes.OpenedLayer(layer, self._account)
            opened.install(lambda arguments: self._plan_call(opened, arguments, ends_the_model))
        return self._classes[id(layer)]

    def _plan_call(
        self, opened: classes.OpenedLayer, arguments: classes.Arguments, ends_the_model: bool
    ) -> classes.Plan:
        """Plan a call that is about to begin."""
        layer = opened.layer
        run = trial_run.run_once(opened.run, arguments, layer, _watched(layer), call_state=CallState.current())
        if run is None:
            self._account.plan(self._recompute_large_members(layer))
            return {}
        plan, has_parts = self._plan(run, run.root, ends_the_model)
        self._account.plan(has_parts)
        opened.watch(call.layer for call in run.root.calls)
        return plan

    def _plan(self, run: trial_run.TrialRun, whole: trial_run.Call, ends_the_model: bool) -> tuple[classes.Plan, bool]:
        """Return the plan for a call of the trial run, and whether it or anything inside it is recomputed."""
        may_open = {id(member) for member in _members_to_open(whole.layer)}
        inside: list[bool] = []

        def is_opened(call: trial_run.Call) -> bool:
            if id(call.layer) not in may_open:
                return False
            if graph_of(call.layer) is not None:
                inside.append(self._open_graph(call.layer, ends_the_model=False))
                return inside[-1]
            plan, has_parts = self._plan(run, call, ends_the_model=False)
            if has_parts:
                opened = self._open_class(call.layer, ends_the_model=False)
                opened.plans[call.signature] = plan
                opened.watch(inner.layer for inner in call.calls)
            inside.append(has_parts)
            return has_parts

        plan = classes.make_plan(run, whole, is_opened, ends_the_model=ends_the_model)
        return plan, bool(plan) or any(inside)

    def _recompute_large_members(self, layer: keras.Layer) -> bool:
        """Recompute every member that has layers of its own, if the layer has no trial run to plan by."""
        members = [member for member in _members(layer) if _members(member)]
        for member in members:
            _recompute_whole(member, self._account)
        return bool(members)


def _members_to_open(layer: keras.Layer) -> list[keras.Layer]:
    """Return the members that are better recomputed in parts than as a whole."""
    members = [member for member in _members(layer) if _members(member)]
    counts = Counter(type(member) for member in members)
    return [member for member in members if counts[type(member)] < _STACK and _is_container(member)]


def _watched(layer: keras.Layer) -> list[keras.Layer]:
    """Return the layers whose calls a trial run records: the members, and those of members that may be opened."""
    inner = [member for member in _members_to_open(layer) if graph_of(member) is None]
    return [*_members(layer), *(layer for member in inner for layer in _watched(member))]


def _is_container(layer: keras.Layer) -> bool:
    """Return whether the layer consists of parts in a row, so that cutting it beats recomputing it as a whole."""
    return graph_of(layer) is not None or _has_stack(layer)


def _has_stack(layer: keras.Layer) -> bool:
    """Return whether several layers of one class, each with layers of its own, are somewhere inside."""
    if trial_run.is_trusted(layer):
        return False
    members = _members(layer)
    counts = Counter(type(member) for member in members if _members(member))
    return max(counts.values(), default=0) > 1 or any(_has_stack(member) for member in members)


def _members(layer: keras.Layer) -> list[keras.Layer]:
    members: list[keras.Layer] = layer._flatten_layers(include_self=False, recursive=False)
    return members


def graph_of(layer: keras.Layer) -> Any:
    """Return the graph of layers that runs when this layer is called, or None."""
    if isinstance(layer, keras.Sequential):
        return layer._functional
    # A user's class may be built from a graph and still run something else.
    is_graph = isinstance(layer, Functional) and type(layer).call is Functional.call
    return layer if is_graph else None


def _recompute_whole(layer: keras.Layer, account: Recomputed) -> None:
    """Recompute the whole layer, unless it keeps state that a second run would not find."""
    plain: Callable[..., Any] = layer.call
    trusted = trial_run.is_trusted(layer)
    decisions: dict[Any, bool] = {}

    def run(arguments: classes.Arguments) -> Any:
        args, kwargs = arguments
        return plain(*args, **kwargs)

    def is_repeatable(args: Any, kwargs: Any) -> bool:
        key = trial_run.signature(args, kwargs)
        if key not in decisions:
            cost = trial_run.cost_of(run, (args, kwargs), layer, call_state=CallState.current())
            decisions[key] = trusted if cost is None else cost.repeatable
        return decisions[key]

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_stateless():
            return plain(*args, **kwargs)
        reason = NOT_REPEATABLE if is_plain((args, kwargs)) else NOT_DENSE
        if reason is NOT_DENSE or not is_repeatable(args, kwargs):
            account.skipped(layer.name, reason)
            return plain(*args, **kwargs)
        account.ran(layer.name)
        return recomputed(run, (args, kwargs), layer)

    layer.call = call
