"""The whole spec: its sections, the rules between them, and its JSON Schema."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from oomtune import domain
from oomtune.spec.dataset import Dataset
from oomtune.spec.fields import Duration, Mistake, Positive, Precision, Section, Size, class_name, read_size
from oomtune.spec.model import Model, Script
from oomtune.spec.search import Percentiles, Search, axis_values, remat_choices
from oomtune.spec.training import Training, check_training

LENGTH = "sequence_length"
_MOST_LENGTHS = 2_000
_LOSS_SCALE = "LossScaleOptimizer"


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
    """The answer of an earlier probe; a new probe replaces it."""

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
    dataset: Dataset | None = Field(None, description="required unless a script or train_step has its own")
    training: Training = Training()
    search: Search = Search()
    device: DeviceSection = DeviceSection()
    trial: TrialSection = TrialSection()
    tuned: Tuned | None = None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Spec.model_json_schema()}


def check_sections(spec: Spec) -> Iterator[Mistake]:
    """Yield the mistakes between entries that are each valid by themselves."""
    if spec.model.trains_itself:
        yield from _check_own_training(spec, "script" if spec.model.script is not None else "train_step")
    elif spec.dataset is None:
        yield ("dataset",), "this key is missing"
    yield from _check_search(spec)
    yield from _check_lengths(spec)
    yield from _check_optimizers(spec)
    yield from check_training(spec.training)


def _check_own_training(spec: Spec, source: str) -> Iterator[Mistake]:
    if spec.training.model_fields_set:
        yield ("training",), f"a {source} compiles and trains its own model; remove this section"
    if spec.search.optimizer is not None:
        yield ("search", "optimizer"), f"a {source} has its own optimizer; remove this key"
    if remat_choices(spec.search.remat) != (domain.RematMode.NONE,):
        yield ("search", "remat"), f"a {source} builds its own model; call oomtune.keras.rematerialise in it"
    if spec.model.script is not None:
        yield from _check_script(spec, spec.model.script)


def _check_script(spec: Spec, script: Script) -> Iterator[Mistake]:
    if spec.dataset is not None:
        yield ("dataset",), "a script reads its own data; remove this section"
    takes_precision = any("{precision}" in str(arg) for arg in script.args)
    if len(set(spec.search.precision)) > 1 and not takes_precision:
        message = "expected one precision: {precision} is in none of model.script.args, so the script can't switch"
        yield ("search", "precision"), message
    for word, axis in (("batch_size", spec.search.batch_size), (LENGTH, spec.search.sequence_length)):
        is_passed = any(f"{{{word}}}" in str(arg) for arg in script.args)
        if axis is not None and not is_passed:
            message = f"expected {{{word}}} in one of them, for the {word} under trial: --size {{{word}}}"
            yield ("model", "script", "args"), message
        if axis is None and is_passed:
            message = f"{{{word}}} needs search.{word}, which is not set: --set 'search.{word}=[64, 128]', or in a spec"
            yield ("model", "script", "args"), message


def _check_search(spec: Spec) -> Iterator[Mistake]:
    search, effective, batches = spec.search, spec.training.effective_batch_size, axis_values(spec.search.batch_size)
    if search.min_batch_size > batches[-1]:
        message = f"expected at most the largest batch size, {batches[-1]}; got {search.min_batch_size}"
        yield ("search", "min_batch_size"), message
    elif effective is not None and effective < (smallest := batches[bisect_left(batches, search.min_batch_size)]):
        message = f"expected at least the smallest batch size, {smallest}; got {effective}"
        yield ("training", "effective_batch_size"), message
    if search.objective == LENGTH and search.sequence_length is None:
        yield ("search", "objective"), "needs search.sequence_length, which is not set"


def _check_lengths(spec: Spec) -> Iterator[Mistake]:
    lengths, min_length = spec.search.sequence_length, spec.search.min_sequence_length
    if lengths is None:
        if min_length is not None:
            yield ("search", "min_sequence_length"), "needs search.sequence_length, which is not set"
    elif isinstance(lengths, Percentiles):
        if spec.dataset is None or spec.dataset.synthetic is not None:
            yield ("search", LENGTH, "percentiles"), "needs a dataset that is not synthetic"
    elif (count := len(axis_values(lengths))) > _MOST_LENGTHS:
        yield ("search", LENGTH), f"gives {count:,} lengths, more than {_MOST_LENGTHS:,}; raise multiple_of"
    elif min_length is not None and min_length > (longest := axis_values(lengths)[-1]):
        yield ("search", "min_sequence_length"), f"expected at most the longest sequence, {longest}; got {min_length}"


def _check_optimizers(spec: Spec) -> Iterator[Mistake]:
    choices = [class_name(entry) for entry in spec.search.optimizer or ()]
    lower = [name.lower() for name in choices]
    repeated = next((index for index, name in enumerate(lower) if name in lower[:index]), None)
    if repeated is not None:
        yield ("search", "optimizer", repeated), f"{lower[repeated]} is listed twice"
    if spec.training.effective_batch_size is None:
        return
    message = (
        f"{_LOSS_SCALE} can't accumulate gradients for training.effective_batch_size; name its inner optimizer "
        "instead: mixed_float16 scales the loss by itself"
    )
    if class_name(spec.training.optimizer) == _LOSS_SCALE:
        yield ("training", "optimizer"), message
    for index, name in enumerate(choices):
        if name == _LOSS_SCALE:
            yield ("search", "optimizer", index), message
