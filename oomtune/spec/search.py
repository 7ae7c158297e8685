"""The `search` section: its schema, and its conversion to a search space."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from oomtune import domain
from oomtune.spec.fields import Named, Positive, Precision, Section, class_name, shape_of


class Range(Section):
    """Every multiple of `multiple_of` from `min` to `max`."""

    min: Positive = 1
    max: Positive
    multiple_of: Positive = 1

    @model_validator(mode="after")
    def _has_a_value(self) -> Range:
        if self.min > self.max:
            raise ValueError(f"min is {self.min} and max is {self.max}; expected min at most max")
        if not self.values():
            raise ValueError(f"no multiple of {self.multiple_of} lies between {self.min} and {self.max}")
        return self

    def values(self) -> range:
        first = -(-self.min // self.multiple_of) * self.multiple_of
        return range(first, self.max + 1, self.multiple_of)


class Percentiles(Section):
    """The lengths at these percentiles of the data, rounded up to a multiple of `multiple_of`."""

    percentiles: Annotated[list[Annotated[float, Field(gt=0, le=100)]], Field(min_length=1, max_length=100)]
    multiple_of: Positive = 1


def _length_form(value: Any) -> str | None:
    if isinstance(value, Percentiles) or (isinstance(value, dict) and "percentiles" in value):
        return "<percentiles>"
    return shape_of(value)


_Number = Annotated[Positive, Tag("<number>")]
_Numbers = Annotated[list[Positive], Field(min_length=1, max_length=10_000), Tag("<list>")]
_AXIS = "expected a whole number, a list of them, or a mapping with min, max and multiple_of"
Axis = Annotated[
    _Number | _Numbers | Annotated[Range, Tag("<mapping>")],
    Discriminator(shape_of, custom_error_type="axis", custom_error_message=_AXIS),
]
LengthAxis = Annotated[
    _Number | _Numbers | Annotated[Range, Tag("<mapping>")] | Annotated[Percentiles, Tag("<percentiles>")],
    Discriminator(
        _length_form, custom_error_type="axis", custom_error_message=f"{_AXIS}, or a mapping with percentiles"
    ),
]
_LayerPattern = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^,]+$")]
Remat = Annotated[
    Annotated[_LayerPattern, Tag("<text>")] | Annotated[list[_LayerPattern], Field(min_length=1), Tag("<list>")],
    Discriminator(
        shape_of,
        custom_error_type="named",
        custom_error_message="expected none, full, or names of layers, in which * stands for anything",
    ),
]


class Search(Section):
    batch_size: Axis = Range(min=1, max=1024)
    sequence_length: LengthAxis | None = None
    precision: Annotated[list[Precision], Field(min_length=1)] = ["float32"]
    remat: Annotated[list[Remat], Field(min_length=1)] = ["none"]
    optimizer: Annotated[list[Named], Field(min_length=1)] | None = None
    min_batch_size: Positive = 1
    min_sequence_length: Positive | None = None
    objective: Literal["tokens", "batch_size", "sequence_length", "throughput"] = "tokens"
    buckets: Annotated[int, Field(ge=0, le=16, description="the most buckets in the answer; 0 for none")] = 4
    resolution: Annotated[float, Field(ge=0, le=0.5)] = 0.02

    @property
    def percentiles(self) -> Percentiles | None:
        return self.sequence_length if isinstance(self.sequence_length, Percentiles) else None


def search_space(
    search: Search, effective_batch_size: int | None, confirm_steps: int, every_lane: bool
) -> domain.SearchSpace:
    """Convert the section. Percentiles give lengths only once the data has been read."""
    batches: Sequence[int] = axis_values(search.batch_size)
    batches = batches[bisect_left(batches, search.min_batch_size) :]
    if effective_batch_size is not None:
        # Batches beyond the smallest one that reaches the effective size are of no use.
        batches = batches[: bisect_left(batches, effective_batch_size) + 1]
    lengths = search.sequence_length
    values = () if lengths is None or isinstance(lengths, Percentiles) else tuple(axis_values(lengths))
    return domain.SearchSpace(
        batch_sizes=batches,
        sequence_lengths=None if lengths is None else values[bisect_left(values, search.min_sequence_length or 1) :],
        most_buckets=search.buckets,
        precisions=tuple(dict.fromkeys(search.precision)),
        remats=remat_choices(search.remat),
        optimizers=tuple(class_name(entry) for entry in search.optimizer) if search.optimizer else (None,),
        effective_batch_size=effective_batch_size,
        objective=domain.Objective(search.objective),
        resolution=search.resolution,
        every_lane=every_lane,
        confirm_steps=confirm_steps,
    )


def axis_values(axis: int | list[int] | Range) -> range | tuple[int, ...]:
    """Return the values of an axis in ascending order, each once."""
    if isinstance(axis, Range):
        return axis.values()
    return tuple(sorted(set(axis))) if isinstance(axis, list) else (axis,)


def remat_choices(entries: list[Remat]) -> tuple[domain.Remat, ...]:
    """Return `none`, `full` and each list of layers as a choice. Layers outside a list are one choice together."""
    modes = {str(mode): mode for mode in domain.RematMode}
    loose = tuple(entry for entry in entries if isinstance(entry, str) and entry not in modes)
    choices: list[domain.Remat] = []
    for entry in entries:
        if isinstance(entry, list):
            choices.append(domain.RematLayers(tuple(entry)))
        else:
            choices.append(modes.get(entry) or domain.RematLayers(loose))
    return tuple(dict.fromkeys(choices))
