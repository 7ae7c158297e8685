"""A validated spec. Nothing past `oomtune.spec` handles raw dicts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from oomtune.domain.data import DatasetSpec, PythonData, Scan
from oomtune.domain.search import Candidate, SearchSpace, Word


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """A Keras object in its serialised form: the name of its class, and the config."""

    class_name: str
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByOutput:
    """The losses or metrics of each output: by the names of the outputs or, without names, in their order."""

    entries: tuple[tuple[str | ClassConfig, ...], ...]
    """For each output, at most one loss or any number of metrics."""
    names: tuple[str, ...] = ()

    def named(self) -> dict[str | int, tuple[str | ClassConfig, ...]]:
        """Return the entries by output name, or by index if the outputs have no names."""
        return dict(zip(self.names or range(len(self.entries)), self.entries, strict=True))


LAYERS_INSIDE = ("layer", "backward_layer", "cell", "cells")
"""The arguments of wrappers and of `RNN` that are layers themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Keras layers in order, each by its class name."""

    trains_itself: ClassVar[bool] = False
    kind: Literal["layers"] = "layers"
    layers: tuple[ClassConfig, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A function of the user that returns the model."""

    trains_itself: ClassVar[bool] = False
    kind: Literal["builder"] = "builder"
    function: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasFile:
    """A file that Keras saved."""

    trains_itself: ClassVar[bool] = False
    kind: Literal["keras_file"] = "keras_file"
    path: str
    allow_code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A model of `keras.applications`."""

    trains_itself: ClassVar[bool] = False
    kind: Literal["application"] = "application"
    name: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainStep:
    """A function of the user that returns a training step."""

    trains_itself: ClassVar[bool] = True
    kind: Literal["train_step"] = "train_step"
    factory: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script. Its arguments hold placeholders such as `{batch_size}` for the values under trial."""

    trains_itself: ClassVar[bool] = True
    kind: Literal["script"] = "script"
    path: str
    args: tuple[str, ...] = ()
    fits: int = 1
    """How many calls of `Model.fit` to measure, each for the trial's steps."""

    def filled(self, candidate: Candidate) -> list[str]:
        """Return the arguments with the candidate's values in place of the placeholders."""
        filled = list(self.args)
        for word in ("batch_size", "sequence_length", "precision"):
            filled = [argument.replace(f"{{{word}}}", str(getattr(candidate, word))) for argument in filled]
        return filled


ModelSpec = Layers | Builder | KerasFile | Application | TrainStep | Script
"""The source of the model. If `trains_itself`, the user's own code runs the steps instead of `Model.fit`."""


class ModelVariant(Word):
    """A change that `explain` makes to the model to measure its effect. Specs can't request one."""

    AS_WRITTEN = "as_written"
    GRU_FOR_LSTM = "gru_for_lstm"


def runs_users_code(model: ModelSpec, dataset: DatasetSpec | None) -> bool:
    """Return True if a trial runs the user's own code."""
    match model:
        case Builder() | TrainStep() | Script() | KerasFile(allow_code=True):
            return True
        case Layers(layers=layers) if any(_is_users_layer(layer.class_name, layer.config) for layer in layers):
            return True
    return isinstance(dataset, PythonData)


def _is_users_layer(name: str, config: Any) -> bool:
    """Return True if this layer, or one inside it, is a class from a module."""
    inside = [config.get(key) for key in LAYERS_INSIDE] if isinstance(config, dict) else []
    layers = [layer for entry in inside for layer in (entry if isinstance(entry, list) else [entry]) if layer]
    entries = [next(iter(layer.items())) if isinstance(layer, dict) else (str(layer), None) for layer in layers]
    return ":" in name or any(_is_users_layer(*entry) for entry in entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    optimizer: str | ClassConfig = "adam"
    optimizer_choices: tuple[tuple[str, str | ClassConfig], ...] = ()
    """The optimizer behind each name in the search space."""
    loss: str | ClassConfig | ByOutput | None = None
    loss_weights: tuple[float, ...] = ()
    """One weight for each entry of a loss by output, in the same order; empty if all weigh the same."""
    metrics: tuple[str | ClassConfig, ...] | ByOutput = ()
    jit_compile: bool | None = None
    """None leaves the choice to Keras."""
    effective_batch_size: int | None = None
    validation_batch_size: int | None = None
    """None means the batch size under trial; 0 means no validation."""
    run_eagerly: bool = False

    def optimizer_of(self, candidate: Candidate) -> str | ClassConfig:
        """Return the optimizer of a candidate."""
        return self.optimizer if candidate.optimizer is None else dict(self.optimizer_choices)[candidate.optimizer]

    def accumulation_steps(self, batch_size: int) -> int:
        """Return how many batches of this size add up to at least the effective batch size."""
        if self.effective_batch_size is None:
            return 1
        return math.ceil(self.effective_batch_size / batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    warmup_steps: int = 1
    steps: int = 3
    confirm_steps: int = 20
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """The device that the spec and flags request. A limit of None means `auto`."""

    kind: Literal["auto", "gpu", "cpu"] = "auto"
    memory_limit_bytes: int | None = None
    like: str | None = None
    headroom: float = 0.05
    allocator: Literal["default", "cuda_malloc_async"] = "default"
    memory_growth: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The device that a probe runs on. `stands_in_for` names the card whose memory limit the CPU imitates."""

    kind: Literal["gpu", "cpu"]
    name: str
    index: int = 0
    allocator: Literal["default", "cuda_malloc_async"] = "default"
    memory_growth: bool = False
    """Whether TensorFlow takes a card's memory as it needs it, instead of the whole limit at once."""
    stands_in_for: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec:
    name: str
    folder: str
    """The spec's folder. Paths and builders are relative to it."""
    model: ModelSpec
    variant: ModelVariant = ModelVariant.AS_WRITTEN
    dataset: DatasetSpec | None
    """None if the user's training code reads its own data."""
    training: TrainingSpec
    space: SearchSpace
    device: DeviceRequest
    trial: TrialSettings
    length_percentiles: tuple[float, ...] = ()
    """Percentiles to search instead of fixed lengths. Reading the data turns them into lengths."""
    length_multiple_of: int = 1
    min_sequence_length: int = 1
    """The shortest sequence that is useful to the user."""
    min_batch_size: int = 1
    scan: Scan | None = None
    """The statistics of the data. None before the data has been read, or if there is none to read."""
