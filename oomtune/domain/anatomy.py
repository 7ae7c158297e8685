"""The contents of memory at the peak of a training step."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain.search import Word


class Held(Word):
    """A use of memory. Activations are results of the forward pass, kept for the backward pass."""

    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer_state"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"
    REST = "workspace_and_rest"


class Phase(Word):
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    held: Held
    size_bytes: int
    measured: bool
    """Whether the allocator measured the size. Otherwise it is computed from shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """The weights and activations of one layer at the peak."""

    name: str
    class_name: str
    weights_bytes: int
    activations_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.activations_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """The peak of a step, part by part. The layer that holds the most comes first."""

    peak_bytes: int
    parts: tuple[Part, ...]
    layers: tuple[LayerMemory, ...]
    layers_measured: bool
    phase: Phase | None = None
    """The phase of the step at the peak; None if unknown."""
    largest_op: str = ""
    """The op whose tensors take the most memory at the peak."""
    largest_bytes: int = 0
    backward_bytes: int = 0
    """The part of the rest that the backward pass uses as scratch."""
    update_bytes: int = 0
    """The part of the rest that the optimizer's update allocates."""
    layer_classes: tuple[str, ...] = ()
    """The classes of all layers, nested layers included."""
    why_computed: str = ""
    """The reason why some parts are computed instead of measured."""

    @property
    def total_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)
