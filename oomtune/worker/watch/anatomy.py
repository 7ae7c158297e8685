"""Breaks a step's peak down into weights, optimizer state, gradients, activations and the rest, and by layer.

Weights and optimizer state are counted from the variables. Everything else that the step allocates is attributed by the
name of its op: an op in a layer's scope made an activation, and an op below `gradient_tape` belongs to the backward
pass. A step under XLA is a single op, and an eager step has no scopes. For these, gradients and activations are
computed from shapes and marked as not measured.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import keras

from oomtune.domain import Anatomy, Held, LayerMemory, Part, Phase, WorkOrder
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch.holders import size_bytes
from oomtune.worker.watch.step_recording import (
    Allocation,
    LayerCalls,
    StepAllocations,
    start_recording,
    stop_recording,
)

_CALL_PREFIX = re.compile(r"^((Stateful)?PartitionedCall(_\d+)?/)+")
_LOOP_PREFIX = re.compile(r"^.*/body/_\d+/")
_NUMBER_SUFFIX = re.compile(r"_\d+$")
_TAPE = "gradient_tape"
# Only an allocation of at least this share of the peak shows which pass is running: small constants come early.
_TELLING_SHARE = 0.001


class AnatomyWatch:
    """Records each step and puts the anatomy of the step with the highest peak into `progress`."""

    def __init__(self, order: WorkOrder, progress: Progress) -> None:
        self.order = order
        self.progress = progress
        self.calls: LayerCalls | None = None
        self.steps = 0
        self.recording: Path | None = None

    def begin_step(self) -> None:
        if self.calls is None:
            self.calls = LayerCalls(self.order.trial.candidate.batch_size)
        folder = Path(self.order.scratch) / f"allocations-{self.steps}"
        self.recording = folder if start_recording(folder) else None
        self.steps += 1

    def end_step(self) -> None:
        if self.recording is None or self.calls is None:
            return
        step = stop_recording(self.recording, self.order.device.kind)
        self.recording = None
        if step is None:
            step = StepAllocations(peak_bytes=self.progress.peak_bytes or 0)
        highest = self.progress.anatomy
        if highest is None or step.peak_bytes > highest.peak_bytes:
            self.progress.anatomy = dissect(step, self.calls)


@dataclass(frozen=True, slots=True)
class _Origin:
    """The pass that an op belongs to, None if unknown, and its scope in the forward pass."""

    phase: Phase | None
    scope: str = ""


class _Origins:
    """Finds the origin of each op of a step from the op's name."""

    def __init__(self, step: StepAllocations, calls: LayerCalls) -> None:
        self.calls = calls
        self.optimizers = calls.optimizer_names()
        self.by_op = {allocation.op: self._read(allocation.op) for allocation in (*step.before, *step.after)}
        self.shows_layers = any(
            origin.phase is Phase.FORWARD and origin.scope in calls.by_scope for origin in self.by_op.values()
        )

    def _read(self, op: str) -> _Origin:
        words = _CALL_PREFIX.sub("", op).split("/")
        for first in range(len(words)):
            for last in range(len(words), first, -1):
                scope = "/".join(words[first:last])
                if scope in self.calls.by_scope:
                    return _Origin(Phase.BACKWARD if _TAPE in words[:first] else Phase.FORWARD, scope)
        if any(_NUMBER_SUFFIX.sub("", word) in self.optimizers or word in self.optimizers for word in words):
            return _Origin(Phase.UPDATE)
        if _TAPE in words:
            return _Origin(Phase.BACKWARD)
        # An op in a scope outside all layers, such as the loss, belongs to the forward pass too.
        return _Origin(Phase.FORWARD, words[0]) if len(words) > 1 else _Origin(None)

    def phase(self, allocation: Allocation) -> Phase | None:
        return self.by_op[allocation.op].phase

    def bytes_by_scope(self, live: Iterable[Allocation]) -> Counter[str]:
        """Return the live bytes of the forward pass by scope."""
        total: Counter[str] = Counter()
        for allocation in live:
            if self.phase(allocation) is Phase.FORWARD:
                total[self.by_op[allocation.op].scope] += allocation.size_bytes
        return total

    def gradient_bytes(self, live: Iterable[Allocation]) -> int:
        """Return the bytes of gradients: backward allocations in a weight's shape, at most one per weight."""
        weights = (weight.value.shape for weight in self.calls.trainable_weights())
        missing = Counter(f"[{','.join(map(str, shape))}]" for shape in weights)
        total = 0
        for allocation in sorted(live, key=lambda one: one.size_bytes):
            if self.phase(allocation) is Phase.BACKWARD and missing[allocation.shape] > 0:
                missing[allocation.shape] -= 1
                total += allocation.size_bytes
        return total

    def phase_at_peak(self, step: StepAllocations) -> Phase:
        def is_backward(allocations: Iterable[Allocation]) -> bool:
            telling = (one for one in allocations if one.size_bytes >= _TELLING_SHARE * step.peak_bytes)
            return any(self.phase(one) is Phase.BACKWARD for one in telling)

        if not is_backward(step.before):
            return Phase.FORWARD
        is_running = self.phase(step.before[-1]) is Phase.BACKWARD or is_backward(step.after)
        return Phase.BACKWARD if is_running else Phase.UPDATE


def dissect(step: StepAllocations, calls: LayerCalls) -> Anatomy:
    """Return the parts of the step's peak."""
    origins = _Origins(step, calls)
    is_measured = origins.shows_layers
    if is_measured:
        activations_by_scope = origins.bytes_by_scope(step.live)
        gradients = origins.gradient_bytes(step.live)
    else:
        activations_by_scope = _output_bytes(calls)
        gradients = _total_bytes(calls.trainable_weights())
    weights, optimizer_state = _total_bytes(calls.weights()), _total_bytes(calls.optimizer_variables())
    rest = max(0, step.peak_bytes - weights - optimizer_state)
    gradients = min(gradients, rest)
    activations = min(activations_by_scope.total(), rest - gradients)
    rest -= gradients + activations
    parts = (
        Part(held=Held.WEIGHTS, size_bytes=weights, measured=False),
        Part(held=Held.OPTIMIZER_STATE, size_bytes=optimizer_state, measured=False),
        Part(held=Held.GRADIENTS, size_bytes=gradients, measured=is_measured),
        Part(held=Held.ACTIVATIONS, size_bytes=activations, measured=is_measured),
        Part(held=Held.REST, size_bytes=rest, measured=is_measured),
    )
    anatomy = Anatomy(
        peak_bytes=step.peak_bytes,
        parts=parts,
        layers=_layers(activations_by_scope, calls),
        layers_measured=is_measured,
        layer_classes=tuple(sorted(calls.layer_classes())),
    )
    if not is_measured:
        return replace(anatomy, why_computed=_why_computed(calls))
    by_op: Counter[str] = Counter()
    by_phase: Counter[Phase | None] = Counter()
    for allocation in step.live:
        by_op[allocation.op] += allocation.size_bytes
        by_phase[origins.phase(allocation)] += allocation.size_bytes
    largest_op, largest_bytes = max(by_op.items(), key=lambda item: item[1], default=("", 0))
    return replace(
        anatomy,
        phase=origins.phase_at_peak(step),
        largest_op=_LOOP_PREFIX.sub("", _CALL_PREFIX.sub("", largest_op)),
        largest_bytes=largest_bytes if largest_op else 0,
        backward_bytes=min(rest, max(0, by_phase[Phase.BACKWARD] - gradients)),
        update_bytes=min(rest, by_phase[Phase.UPDATE]),
    )


def _total_bytes(variables: Iterable[object]) -> int:
    return sum(map(size_bytes, variables))


def _why_computed(calls: LayerCalls) -> str:
    if not calls.by_scope:
        return "no layer of a Keras model was called in the step"
    if any(getattr(model, "jit_compile", False) is True for model in calls.models):
        return "XLA makes one op of the whole step"
    return "the ops of this step carry no names of layers: it runs eagerly, or is compiled as one"


def _output_bytes(calls: LayerCalls) -> Counter[str]:
    """Return the output sizes of all layers. Skip models, whose output is their last layer's output."""
    leaves = {scope: call for scope, call in calls.by_scope.items() if not isinstance(call.layer, keras.Model)}
    return Counter({scope: call.output_bytes for scope, call in leaves.items()})


def _layers(bytes_by_scope: Counter[str], calls: LayerCalls) -> tuple[LayerMemory, ...]:
    """Return every layer, and every scope outside all layers, that holds memory, largest first."""
    weights = {(layer.name, type(layer).__name__): _total_bytes(layer.weights) for layer in calls.layers}
    activations = Counter(dict.fromkeys(weights, 0))
    for scope, scope_bytes in bytes_by_scope.items():
        call = calls.by_scope.get(scope)
        if call is None:
            key = (scope, "")
        elif isinstance(call.layer, keras.Model):
            key = (f"{call.layer.name} (between its layers)", "")
        else:
            key = (call.layer.name, type(call.layer).__name__)
        activations[key] += scope_bytes
    layers = [
        LayerMemory(name=name, class_name=kind, weights_bytes=weights.get((name, kind), 0), activations_bytes=size)
        for (name, kind), size in activations.items()
    ]
    return tuple(sorted((layer for layer in layers if layer.total_bytes), key=lambda layer: -layer.total_bytes))
