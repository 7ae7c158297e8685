"""The shape of a spec, as pydantic models; what they accept is what the JSON Schema says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_validator

from oomtune.spec.data_schema import Dataset
from oomtune.spec.model_schema import Model
from oomtune.spec.sections import (
    Axis,
    Duration,
    LengthAxis,
    Losses,
    Metrics,
    Named,
    Positive,
    Precision,
    Range,
    Remat,
    Section,
    Size,
    Weights,
    read_size,
    shape_of,
)


class Training(Section):
    optimizer: Named = "adam"
    loss: Losses | None = Field(default=None, description="a loss, or one for each output by name, or in a list")
    loss_weights: Weights | None = Field(default=None, description="a number for each of several losses")
    metrics: Metrics = Field(
        default=[], description="metrics, or those of each output: by their names, or in a list of lists"
    )
    jit_compile: bool | Literal["auto"] = "auto"
    effective_batch_size: Positive | None = None
    validation_batch_size: Annotated[
        Annotated[Positive, Tag("<number>")] | Annotated[Literal["same", "none"], Tag("<text>")],
        Discriminator(shape_of, custom_error_type="size", custom_error_message="expected same, none or a whole number"),
    ] = "same"
    run_eagerly: bool = False


class Search(Section):
    batch_size: Axis = Range(min=1, max=1024)
    sequence_length: LengthAxis | None = None
    precision: Annotated[list[Precision], Field(min_length=1)] = ["float32"]
    remat: Annotated[list[Remat], Field(min_length=1)] = ["none"]
    optimizer: Annotated[list[Named], Field(min_length=1)] | None = None
    min_batch_size: Positive = 1
    min_sequence_length: Positive | None = None
    objective: Literal["tokens", "batch_size", "sequence_length", "throughput"] = "tokens"
    buckets: Annotated[int, Field(ge=0, le=16, description="how many the answer may have; 0 is none")] = 4
    resolution: Annotated[float, Field(ge=0, le=0.5)] = 0.02


class DeviceSection(Section):
    kind: Literal["auto", "gpu", "cpu"] = "auto"
    memory_limit: Annotated[
        Size | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else read_size(value)),
        WithJsonSchema({"type": ["string", "integer"], "examples": ["auto", "2GiB"], "default": "auto"}),
    ] = "auto"
    like: str | None = Field(default=None, description="the budget of this card, from the catalogue")
    headroom: Annotated[float, Field(ge=0, lt=0.9)] = 0.05
    allocator: Literal["default", "cuda_malloc_async"] = "default"
    memory_growth: bool = False
    replicas: Literal[1] = 1

    @model_validator(mode="after")
    def _one_source_of_the_limit(self) -> DeviceSection:
        if self.like is not None and self.memory_limit != "auto":
            raise ValueError("like and memory_limit both set the limit; keep one")
        return self


class TrialSection(Section):
    warmup_steps: Annotated[int, Field(ge=1, le=10_000)] = 1
    steps: Annotated[int, Field(ge=1, le=10_000)] = 3
    confirm_steps: Annotated[int, Field(ge=2, le=1_000_000)] = 20
    timeout: Duration = 600.0


class Tuned(BaseModel):
    """What an earlier probe found; a new probe replaces it."""

    model_config = ConfigDict(extra="allow")

    format: Literal[1]
    batch_size: Positive
    sequence_length: Positive | None = None
    precision: Precision


class Spec(Section):
    """A model, its data and how it trains; what to search, and on which device."""

    model_config = ConfigDict(extra="forbid", strict=True, title="oomtune spec")

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    model: Model
    dataset: Dataset | None = Field(None, description="needed unless a script or train_step has its own")
    training: Training = Training()
    search: Search = Search()
    device: DeviceSection = DeviceSection()
    trial: TrialSection = TrialSection()
    tuned: Tuned | None = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec, for editors."""
    schema = Spec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
