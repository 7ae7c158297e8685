"""What every section of a spec is made of: strict mappings, and values that may be written in several ways."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_validator

from oomtune.units import MIB, parse_bytes, parse_seconds

_HUGE = 2**31 - 1

Positive = Annotated[int, Field(ge=1, le=_HUGE)]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
DType = Literal[
    "float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool"
]  # fmt: skip


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def nearest(name: str, known: Collection[str]) -> str:
    """The known name that may have been meant, as the end of a message; empty when none is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shape_of(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, BaseModel):
        return "<mapping>"
    return {int: "<number>", list: "<list>", dict: "<mapping>", str: "<text>"}.get(type(value))


def read_size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("expected auto, or a size such as 2GiB or 1500MB")
    size = parse_bytes(str(value))
    if size < MIB:  # TensorFlow takes limits in whole MiB, and would be given more than was asked for
        raise ValueError("expected at least 1MiB, with its unit, such as 2GiB or 1500MB")
    return size


def _duration(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a duration such as 90s, 10m or 2h")
    return parse_seconds(str(value))


Size = Annotated[
    int, BeforeValidator(read_size), WithJsonSchema({"type": ["string", "integer"], "examples": ["2GiB", "1500MB"]})
]
Duration = Annotated[
    float, BeforeValidator(_duration), WithJsonSchema({"type": ["string", "number"], "examples": ["90s", "10m"]})
]


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


Axis = Annotated[
    Annotated[Positive, Tag("<number>")]
    | Annotated[list[Positive], Field(min_length=1, max_length=10_000), Tag("<list>")]
    | Annotated[Range, Tag("<mapping>")],
    Discriminator(
        shape_of,
        custom_error_type="axis",
        custom_error_message="expected a whole number, a list of them, or a mapping with min, max and multiple_of",
    ),
]


class Percentiles(Section):
    """The lengths that these percentiles of the data have, rounded up to a multiple of `multiple_of`."""

    percentiles: Annotated[list[Annotated[float, Field(gt=0, le=100)]], Field(min_length=1, max_length=100)]
    multiple_of: Positive = 1


def _length_axis(value: Any) -> str | None:
    if isinstance(value, Percentiles) or (isinstance(value, dict) and "percentiles" in value):
        return "<percentiles>"
    return shape_of(value)


LengthAxis = Annotated[
    Annotated[Positive, Tag("<number>")]
    | Annotated[list[Positive], Field(min_length=1, max_length=10_000), Tag("<list>")]
    | Annotated[Range, Tag("<mapping>")]
    | Annotated[Percentiles, Tag("<percentiles>")],
    Discriminator(
        _length_axis,
        custom_error_type="axis",
        custom_error_message="expected a whole number, a list of them, or a mapping with min, max and multiple_of, or "
        "with percentiles",
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
"""`none`, `full`, or layers that are computed again: those named together are one choice."""


class KerasObject(Section):
    """A Keras object as Keras serialises it."""

    class_name: str
    config: dict[str, Any] = {}


Named = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[KerasObject, Tag("<mapping>")],
    Discriminator(
        shape_of,
        custom_error_type="named",
        custom_error_message="expected a Keras name, or a mapping with class_name and config",
    ),
]


_OF_OBJECTS = KerasObject.model_fields.keys()


def _by_output(value: Any) -> str | None:
    """Which form it has. A Keras object is a mapping too; no other has these keys."""
    if isinstance(value, dict) and not _OF_OBJECTS & value.keys():
        return "<outputs>"
    return shape_of(value)


_NO_OBJECT: dict[str, Any] = {"propertyNames": {"minLength": 1, "not": {"enum": sorted(_OF_OBJECTS)}}}
_OUTPUT = Annotated[str, Field(min_length=1)]

Losses = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[KerasObject, Tag("<mapping>")]
    | Annotated[list[Named | None], Field(min_length=1), Tag("<list>")]
    | Annotated[dict[_OUTPUT, Named | None], Field(min_length=1, json_schema_extra=_NO_OBJECT), Tag("<outputs>")],
    Discriminator(
        _by_output,
        custom_error_type="named",
        custom_error_message="expected a Keras name, a mapping with class_name and config, or one for each output: a "
        "mapping by their names, or a list in their order",
    ),
]

MetricsOfOutput = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[KerasObject, Tag("<mapping>")] | Annotated[list[Named], Tag("<list>")],
    Discriminator(
        shape_of,
        custom_error_type="named",
        custom_error_message="expected a Keras name, a mapping with class_name and config, or a list of them",
    ),
]

Metrics = Annotated[
    Annotated[list[MetricsOfOutput | None], Tag("<list>")]
    | Annotated[dict[_OUTPUT, MetricsOfOutput | None], Tag("<mapping>")],
    Discriminator(
        shape_of,
        custom_error_type="named",
        custom_error_message="expected a list of metrics, or a mapping from the names of outputs to theirs",
    ),
]

_Weight = Annotated[float, Field(allow_inf_nan=False)]
Weights = Annotated[
    Annotated[list[_Weight], Tag("<list>")] | Annotated[dict[_OUTPUT, _Weight], Tag("<mapping>")],
    Discriminator(
        shape_of,
        custom_error_type="named",
        custom_error_message="expected a number for each output, in the form that training.loss has: a mapping by "
        "their names, or a list in their order",
    ),
]
