"""What memory holds at the peak of a training step."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain.search import Word


class Held(Word):
    """What memory is held for. Activations are what the forward pass made and the backward pass still needs."""

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
    """Seen by the allocator? Otherwise it is computed from shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """What one layer holds at the peak: its weights, and what it made in the forward pass."""

    name: str
    class_name: str
    weights_bytes: int
    activations_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.activations_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """A step's peak, part by part. Layers hold the most first."""

    peak_bytes: int
    parts: tuple[Part, ...]
    layers: tuple[LayerMemory, ...]
    layers_measured: bool
    phase: Phase | None = None
    """Where in the step the peak was; None where that can't be seen."""
    largest_op: str = ""
    """The op whose tensors take the most at the peak."""
    largest_bytes: int = 0
    backward_bytes: int = 0
    """Of the rest: what the backward pass made and needs for itself."""
    update_bytes: int = 0
    """Of the rest: what the optimizer's update made."""
    layer_classes: tuple[str, ...] = ()
    """The classes of all layers, those inside others included."""
    why_computed: str = ""
    """Why some parts could not be measured."""

    @property
    def total_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)
