"""What memory holds at the peak of a step: weights, optimizer state, gradients, activations and the rest; and which
layers hold it.

The weights and the optimizer's state are counted from the variables. What the step itself makes is seen by the
allocator, with the name of the op that made it: an op in a layer's scope made an activation, the same below
`gradient_tape` belongs to the backward pass. A step under XLA is one op, and one that runs eagerly has no scopes: there
gradients and activations are computed from shapes, and said to be.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import keras

from oomtune.domain import Anatomy, Held, LayerMemory, Part, Phase, WorkOrder
from oomtune.worker.process.progress import Progress
from oomtune.worker.watch import allocations
from oomtune.worker.watch.allocations import Allocation, Recorded
from oomtune.worker.watch.layer_scopes import Listener, size_bytes

_CALLS = re.compile(r"^((Stateful)?PartitionedCall(_\d+)?/)+")
_LOOPS = re.compile(r"^.*/body/_\d+/")
_COUNTED = re.compile(r"_\d+$")
_TAPE = "gradient_tape"
# An allocation smaller than this share of the peak does not tell which pass is running: constants come early.
_TELLING_SHARE = 0.001
_BETWEEN = " (between its layers)"


class Anatomist:
    """Told when a step begins and ends; the anatomy of the step that took the most goes into `progress`."""

    def __init__(self, order: WorkOrder, progress: Progress) -> None:
        self.order = order
        self.progress = progress
        self.listener: Listener | None = None
        self.recording: Path | None = None

    def step_begins(self, steps_seen: int) -> None:
        if self.listener is None:
            self.listener = Listener(self.order.trial.candidate.batch_size)
        folder = Path(self.order.scratch) / f"allocations-{steps_seen}"
        self.recording = folder if allocations.start(folder) else None

    def step_ended(self) -> None:
        if self.recording is None or self.listener is None:
            return
        recorded = allocations.stop(self.recording, self.order.device.kind)
        self.recording = None
        if recorded is None:
            recorded = Recorded(peak_bytes=self.progress.peak_bytes or 0, live=(), before=(), after=())
        known = self.progress.anatomy
        if known is None or recorded.peak_bytes > known.peak_bytes:
            self.progress.anatomy = anatomy_of(recorded, self.listener)


class _Side(Enum):
    FORWARD = 1
    BACKWARD = 2
    UPDATE = 3
    OTHER = 4


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the names of ops: which pass each belongs to, and which layer."""

    listener: Listener
    optimizers: tuple[str, ...]

    def read(self, op: str) -> tuple[_Side, str]:
        words = _CALLS.sub("", op).split("/")
        for first in range(len(words)):
            for last in range(len(words), first, -1):
                scope = "/".join(words[first:last])
                if scope in self.listener.calls:
                    return (_Side.BACKWARD if _TAPE in words[:first] else _Side.FORWARD), scope
        if any(_COUNTED.sub("", word) in self.optimizers or word in self.optimizers for word in words):
            return _Side.UPDATE, ""
        if _TAPE in words:
            return _Side.BACKWARD, ""
        # What is in a scope but in no layer's, such as the loss, is of the forward pass too.
        return (_Side.FORWARD, words[0]) if len(words) > 1 else (_Side.OTHER, "")


def anatomy_of(recorded: Recorded, listener: Listener) -> Anatomy:
    reader = _Reader(listener, listener.optimizer_scopes())
    read = {allocation.op: reader.read(allocation.op) for allocation in (*recorded.before, *recorded.after)}
    seen = any(scope in listener.calls for side, scope in read.values() if side is _Side.FORWARD)
    made = _made(recorded.live, read) if seen else _computed(listener)
    weights, state = size_bytes(listener.weights()), size_bytes(listener.optimizer_state())
    trainable = listener.trainable()
    gradients = _gradients(recorded.live, read, trainable) if seen else size_bytes(trainable)
    left = max(0, recorded.peak_bytes - weights - state)
    gradients = min(gradients, left)
    activations = min(sum(made.values()), left - gradients)
    rest = left - gradients - activations
    parts = (
        Part(held=Held.WEIGHTS, size_bytes=weights, measured=False),
        Part(held=Held.OPTIMIZER_STATE, size_bytes=state, measured=False),
        Part(held=Held.GRADIENTS, size_bytes=gradients, measured=seen),
        Part(held=Held.ACTIVATIONS, size_bytes=activations, measured=seen),
        Part(held=Held.REST, size_bytes=rest, measured=seen),
    )
    by_op, by_side = _totals(recorded.live, read)
    largest = max(by_op, key=lambda op: by_op[op], default="") if seen else ""
    return Anatomy(
        peak_bytes=recorded.peak_bytes,
        parts=parts,
        layers=_layers(made, listener),
        layers_measured=seen,
        phase=_phase(recorded, read) if seen else None,
        largest_op=_LOOPS.sub("", _CALLS.sub("", largest)),
        largest_bytes=by_op[largest] if largest else 0,
        backward_bytes=min(rest, max(0, by_side[_Side.BACKWARD] - gradients)) if seen else 0,
        update_bytes=min(rest, by_side[_Side.UPDATE]) if seen else 0,
        layer_classes=tuple(sorted(listener.classes())),
        why_computed="" if seen else _why(listener),
    )


def _totals(live: Iterable[Allocation], read: dict[str, tuple[_Side, str]]) -> tuple[Counter[str], Counter[_Side]]:
    by_op: Counter[str] = Counter()
    by_side: Counter[_Side] = Counter()
    for allocation in live:
        by_op[allocation.op] += allocation.size_bytes
        by_side[read[allocation.op][0]] += allocation.size_bytes
    return by_op, by_side


def _why(listener: Listener) -> str:
    if not listener.calls:
        return "no layer of a Keras model was called in the step"
    if any(getattr(model, "jit_compile", False) is True for model in listener.models):
        return "XLA makes one op of the whole step"
    return "the ops of this step carry no names of layers: it runs eagerly, or is compiled as one"


def _made(live: Iterable[Allocation], read: dict[str, tuple[_Side, str]]) -> dict[str, int]:
    """What the forward pass made and memory still holds, by scope."""
    made: dict[str, int] = defaultdict(int)
    for allocation in live:
        side, scope = read[allocation.op]
        if side is _Side.FORWARD:
            made[scope] += allocation.size_bytes
    return made


def _computed(listener: Listener) -> dict[str, int]:
    """What every layer returns. A model returns what its last layer did, so models don't count."""
    return {
        scope: called.output_bytes
        for scope, called in listener.calls.items()
        if not isinstance(called.layer, keras.Model)
    }


def _gradients(live: Iterable[Allocation], read: dict[str, tuple[_Side, str]], trainable: list[Any]) -> int:
    """What the backward pass made in the shape of a weight, once for each weight of that shape."""
    wanted = Counter(_shown(variable.value.shape) for variable in trainable)
    found = 0
    for allocation in sorted(live, key=lambda one: one.size_bytes):
        if read[allocation.op][0] is _Side.BACKWARD and wanted[allocation.shape] > 0:
            wanted[allocation.shape] -= 1
            found += allocation.size_bytes
    return found


def _shown(shape: Any) -> str:
    return f"[{','.join(map(str, shape))}]"


def _phase(recorded: Recorded, read: dict[str, tuple[_Side, str]]) -> Phase:
    def backward(made: Iterable[Allocation]) -> bool:
        least = _TELLING_SHARE * recorded.peak_bytes
        return any(read[one.op][0] is _Side.BACKWARD for one in made if one.size_bytes >= least)

    if not backward(recorded.before):
        return Phase.FORWARD
    at_the_peak = read[recorded.before[-1].op][0] is _Side.BACKWARD
    return Phase.BACKWARD if at_the_peak or backward(recorded.after) else Phase.UPDATE


def _layers(made: dict[str, int], listener: Listener) -> tuple[LayerMemory, ...]:
    """Every layer that holds something, and every scope that is no layer's; the most first."""
    activations: dict[tuple[str, str], int] = defaultdict(int)
    weights = {(layer.name, type(layer).__name__): size_bytes(layer.weights) for layer in listener.layers}
    for scope, size in made.items():
        called = listener.calls.get(scope)
        if called is None:
            key = (scope, "")
        elif isinstance(called.layer, keras.Model):
            key = (f"{called.layer.name}{_BETWEEN}", "")
        else:
            key = (called.layer.name, type(called.layer).__name__)
        activations[key] += size
    found = [
        LayerMemory(name=name, class_name=kind, weights_bytes=weights.get((name, kind), 0), activations_bytes=size)
        for (name, kind), size in (dict.fromkeys(weights, 0) | activations).items()
    ]
    return tuple(sorted((layer for layer in found if layer.total_bytes), key=lambda layer: -layer.total_bytes))
