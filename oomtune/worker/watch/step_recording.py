"""Records one training step: every allocation, with the op that made it, and every layer call, with its graph scope.

TensorFlow's profiler records each allocation of its BFC allocator together with the op that requested it. The
recording leaves the graph unchanged, so it shows the step as it runs in training.
"""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import keras
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

_T = TypeVar("_T")
_ALLOCATED = "MemoryAllocation"
_FREED = "MemoryDeallocation"
# Level 2 is the lowest that records the allocator's events. Python calls and device kernels are not needed.
_OPTIONS = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A piece of memory, with its size as the allocator counts it."""

    op: str
    """The op that requested the memory; empty if no op did."""
    size_bytes: int
    shape: str
    """For example `[64,128]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAllocations:
    """The allocations of one step, split at its peak."""

    peak_bytes: int
    live: tuple[Allocation, ...] = ()
    """The step's own allocations that were in use at the peak."""
    before: tuple[Allocation, ...] = ()
    """All allocations up to the peak."""
    after: tuple[Allocation, ...] = ()


@dataclass(frozen=True, slots=True)
class _Event:
    """An event of the allocator, with the profiler's statistics for it."""

    at_ps: int
    kind: str
    stats: dict[str, Any]

    def allocation(self) -> Allocation:
        size_bytes, shape = int(self.stats["allocation_bytes"]), str(self.stats.get("shape", ""))
        return Allocation(op=str(self.stats.get("tf_op", "")), size_bytes=size_bytes, shape=shape)


def start_recording(folder: Path) -> bool:
    """Start the profiler. Return False if the user's own code is profiling: TensorFlow has only one profiler."""
    try:
        tf.profiler.experimental.start(str(folder), options=_OPTIONS)
    except tf.errors.AlreadyExistsError:
        return False
    return True


def stop_recording(folder: Path, device_kind: str) -> StepAllocations | None:
    """Return the allocations since the start, or None if the profiler recorded none."""
    tf.profiler.experimental.stop()
    events = sorted(
        (event for path in folder.rglob("*.xplane.pb") for event in _read_events(path, device_kind)),
        key=lambda event: event.at_ps,
    )
    allocated = {index: event.allocation() for index, event in enumerate(events) if event.kind == _ALLOCATED}
    if not allocated:
        return None
    peak = max(allocated, key=lambda index: int(events[index].stats["bytes_allocated"]))
    live: dict[int, Allocation] = {}
    for index, event in enumerate(events[: peak + 1]):
        if event.kind == _ALLOCATED:
            live[event.stats["addr"]] = allocated[index]
        else:
            live.pop(event.stats["addr"], None)
    return StepAllocations(
        peak_bytes=int(events[peak].stats["bytes_allocated"]),
        live=tuple(live.values()),
        before=tuple(allocation for index, allocation in allocated.items() if index <= peak),
        after=tuple(allocation for index, allocation in allocated.items() if index > peak),
    )


def _read_events(path: Path, device_kind: str) -> Iterator[_Event]:
    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    for plane in space.planes:
        names = {key: entry.name for key, entry in plane.event_metadata.items()}
        keys = {key: entry.name for key, entry in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                kind = names[event.metadata_id]
                if kind not in (_ALLOCATED, _FREED):
                    continue
                stats = {keys[stat.metadata_id]: _value(stat, keys) for stat in event.stats}
                if device_kind == "cpu" or _is_card_allocator(str(stats.get("allocator_name", ""))):
                    yield _Event(line.timestamp_ns * 1000 + event.offset_ps, kind, stats)


def _is_card_allocator(name: str) -> bool:
    """Return whether the allocator serves the card: the profiler also records the host's `gpu_host_bfc`."""
    return name.lower().startswith("gpu") and "host" not in name.lower()


def _value(stat: xplane_pb2.XStat, keys: dict[int, str]) -> str | int:
    field = stat.WhichOneof("value")
    value = getattr(stat, field)
    return keys[value] if field == "ref_value" else value


@dataclass(frozen=True, slots=True)
class LayerCall:
    layer: keras.layers.Layer
    output_bytes: int


class LayerCalls:
    """Records the calls of every layer of every model in this process, under `Model.fit` and in custom loops alike."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.by_scope: dict[str, LayerCall] = {}
        """The first call in each scope of the graph."""
        gc.collect()
        self.models = _instances_of(keras.Model)
        self.layers = list(_unique(layer for model in self.models for layer in _layers_of(model)))
        for layer in (*self.models, *self.layers):
            self._record_calls(layer)

    def weights(self) -> list[Any]:
        return list(_unique(weight for model in self.models for weight in model.weights))

    def trainable_weights(self) -> list[Any]:
        return list(_unique(weight for model in self.models for weight in model.trainable_weights))

    def optimizer_variables(self) -> list[Any]:
        optimizers = _instances_of(keras.optimizers.Optimizer)
        return list(_unique(variable for optimizer in optimizers for variable in optimizer.variables))

    def optimizer_names(self) -> tuple[str, ...]:
        return tuple(optimizer.name for optimizer in _instances_of(keras.optimizers.Optimizer))

    def layer_classes(self) -> set[str]:
        """Return the class names of all layers, including those inside other layers."""
        return {type(layer).__name__ for model in self.models for layer in model._flatten_layers(include_self=False)}

    def _record_calls(self, layer: keras.layers.Layer) -> None:
        call = layer.call

        @functools.wraps(call)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            # Layers of one class get scopes such as lstm_1 and lstm_1_2. Only the call shows which layer owns which.
            scope = tf.get_current_name_scope() or layer.name
            outputs = call(*args, **kwargs)
            self.by_scope.setdefault(scope, LayerCall(layer, self._output_bytes(outputs)))
            return outputs

        layer.call = recorded

    def _output_bytes(self, outputs: Any) -> int:
        tensors = [tensor for tensor in tf.nest.flatten(outputs) if isinstance(tensor, tf.Tensor)]
        return sum(self._element_count(tensor) * tensor.dtype.size for tensor in tensors)

    def _element_count(self, tensor: tf.Tensor) -> int:
        """Return the number of elements. If the graph leaves the first dimension open, use the batch size."""
        dimensions = list(tensor.shape) if tensor.shape.rank is not None else []
        if dimensions[:1] == [None]:
            dimensions[0] = self.batch_size
        return math.prod(dimension or 1 for dimension in dimensions)


def _layers_of(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yield the layers of the model and of the models inside it, but not the layers inside a layer."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers_of(layer)
        elif not isinstance(layer, keras.layers.InputLayer):
            yield layer


def _instances_of(kind: type[_T]) -> list[_T]:
    # `issubclass` of the type, because `isinstance` would load lazy modules and dereference proxies.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def _unique(things: Iterable[_T]) -> Iterator[_T]:
    ids: set[int] = set()
    for thing in things:
        if id(thing) not in ids:
            ids.add(id(thing))
            yield thing
