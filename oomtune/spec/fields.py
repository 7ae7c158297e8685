"""Shared by the sections of a spec: the strict base class, value types, conversion, and suggestions."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from oomtune import domain
from oomtune.spec.yaml_text import KeyPath
from oomtune.units import MIB, parse_bytes, parse_seconds

_Type = TypeVar("_Type")
Mistake = tuple[KeyPath, str]
"""The path of an entry, and the message about it."""

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
InModule = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    domain_type: ClassVar[type | None] = None
    """The domain type of a section that is nested in another one."""


def convert(section: Section, target: type[_Type], **changes: Any) -> _Type:
    """Build the domain type from the section's values and `changes`, which win. Lists become tuples.

    Values without a field in the domain type are dropped.
    """
    values = {name: _immutable(value) for name, value in section} | changes
    names = [field.name for field in dataclasses.fields(target)]  # type: ignore[arg-type]
    return target(**{name: values[name] for name in names if name in values})


def _immutable(value: Any) -> Any:
    if isinstance(value, Section) and value.domain_type is not None:
        return convert(value, value.domain_type)
    if isinstance(value, dict):
        return {key: _immutable(entry) for key, entry in value.items()}
    return tuple(map(_immutable, value)) if isinstance(value, list) else value


def nearest(name: str, names: Collection[str]) -> str:
    """Return a suggestion of the closest name to append to a message, empty if none is close."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shape_of(value: Any) -> str | None:
    """Return the tag of the value's YAML form, which selects one alternative of a union."""
    if isinstance(value, bool):
        return None
    if isinstance(value, BaseModel):
        return "<mapping>"
    return {int: "<number>", list: "<list>", dict: "<mapping>", str: "<text>"}.get(type(value))


def read_size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("expected auto, or a size such as 2GiB or 1500MB")
    size = parse_bytes(str(value))
    if size < MIB:  # TensorFlow takes limits in whole MiB and would round this up to more than the user allowed
        raise ValueError("expected at least 1MiB, with its unit, such as 2GiB or 1500MB")
    return size


def _read_duration(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a duration such as 90s, 10m or 2h")
    return parse_seconds(str(value))


Size = Annotated[
    int, BeforeValidator(read_size), WithJsonSchema({"type": ["string", "integer"], "examples": ["2GiB", "1500MB"]})
]
Duration = Annotated[
    float, BeforeValidator(_read_duration), WithJsonSchema({"type": ["string", "number"], "examples": ["90s", "10m"]})
]


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


def named(entry: str | KerasObject) -> str | domain.ClassConfig:
    return entry if isinstance(entry, str) else domain.ClassConfig(class_name=entry.class_name, config=entry.config)


def class_name(entry: str | KerasObject) -> str:
    return entry if isinstance(entry, str) else entry.class_name
