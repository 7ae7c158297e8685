"""The shape of a spec, as pydantic models; what they accept is what the JSON Schema says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_validator

from oomtune.units import parse_bytes, parse_seconds

_HUGE = 2**31 - 1

Positive = Annotated[int, Field(ge=1, le=_HUGE)]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
DType = Literal[
    "float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool"
]  # fmt: skip


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _shape_of(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, BaseModel):
        return "mapping"
    return {int: "number", list: "list", dict: "mapping", str: "text"}.get(type(value))


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("expected auto, or a size such as 2GiB or 1500MB")
    return parse_bytes(str(value))


def _duration(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("expected a duration such as 90s, 10m or 2h")
    return parse_seconds(str(value))


Size = Annotated[
    int, BeforeValidator(_size), WithJsonSchema({"type": ["string", "integer"], "examples": ["2GiB", "1500MB"]})
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
    Annotated[Positive, Tag("number")]
    | Annotated[list[Positive], Field(min_length=1, max_length=10_000), Tag("list")]
    | Annotated[Range, Tag("mapping")],
    Discriminator(
        _shape_of,
        custom_error_type="axis",
        custom_error_message="expected a whole number, a list of them, or a mapping with min, max and multiple_of",
    ),
]


class KerasObject(Section):
    """A Keras object as Keras serialises it."""

    class_name: str
    config: dict[str, Any] = {}


Named = Annotated[
    Annotated[str, Tag("text")] | Annotated[KerasObject, Tag("mapping")],
    Discriminator(
        _shape_of,
        custom_error_type="named",
        custom_error_message="expected a Keras name, or a mapping with class_name and config",
    ),
]

LayerEntry = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[dict[str, dict[str, Any] | None], Field(min_length=1, max_length=1), Tag("mapping")],
    Discriminator(
        _shape_of,
        custom_error_type="layer",
        custom_error_message="expected a layer such as 'Dense: {units: 2}'",
    ),
]


class Application(Section):
    """A model of `keras.applications`."""

    name: str
    args: dict[str, Any] = Field({}, description="its arguments; no weights are downloaded")


class Model(Section):
    """The model: exactly one of `layers`, `builder`, `keras_file` and `application`."""

    layers: Annotated[list[LayerEntry], Field(min_length=1)] | None = Field(
        None,
        description="Keras layers, or package.module:Class, in order; `inbound` names what a layer comes after",
    )
    builder: str | None = Field(
        None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", description="package.module:function, found from the spec"
    )
    args: dict[str, Any] = Field({}, description="arguments for the builder")
    keras_file: str | None = Field(
        None, pattern=r"\.(keras|h5|hdf5|json)$", description="a .keras or .h5 file, or the JSON of Model.to_json"
    )
    allow_code: bool = Field(False, description="may keras_file hold code: Lambda layers, classes of your own?")
    application: Application | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Model:
        ways = ("layers", "builder", "keras_file", "application")
        if sum(getattr(self, way) is not None for way in ways) != 1:
            raise ValueError(f"expected exactly one of {', '.join(ways[:-1])} and {ways[-1]}")
        if self.builder is None and self.args:
            raise ValueError("args are for a builder; layers and applications take their own arguments")
        if self.keras_file is None and self.allow_code:
            raise ValueError("allow_code is for a keras_file")
        return self


class Tensor(Section):
    """One tensor of a sample; `sequence_length` in the shape stands for the value under trial."""

    shape: list[Positive | Literal["sequence_length"]]
    dtype: DType = "float32"
    max: Annotated[float, Field(gt=0)] | None = Field(None, description="values lie below this; needed for integers")

    @model_validator(mode="after")
    def _integers_have_a_bound(self) -> Tensor:
        if "int" not in self.dtype:
            return self
        if self.max is None:
            raise ValueError(f"max is missing: how many different values an {self.dtype} may have")
        bits = int(self.dtype.rpartition("int")[2])
        most = 2 ** (bits if self.dtype.startswith("u") else bits - 1)
        if self.max != int(self.max) or not 1 <= self.max <= most:
            raise ValueError(
                f"expected max to be a whole number from 1 to {most} for an {self.dtype}; got {self.max:g}"
            )
        return self


def _one_or_named(value: Any) -> str:
    several = isinstance(value, dict) and value and "shape" not in value
    return "named" if several and all(isinstance(entry, dict | BaseModel) for entry in value.values()) else "tensor"


Tensors = Annotated[
    Annotated[Tensor, Tag("tensor")] | Annotated[dict[str, Tensor], Tag("named")],
    Discriminator(_one_or_named),
]
ArrayNames = Annotated[
    Annotated[str, Tag("text")] | Annotated[dict[str, str], Field(min_length=1), Tag("mapping")],
    Discriminator(
        _shape_of,
        custom_error_type="arrays",
        custom_error_message="expected the name of an array, or a mapping of inputs to names",
    ),
]


class Synthetic(Section):
    """Random samples. A model with several inputs or outputs gets a mapping of their names to tensors."""

    inputs: Tensors
    targets: Tensors


class Npz(Section):
    """Arrays in a NumPy archive, one entry a sample."""

    path: str
    inputs: ArrayNames = "x"
    targets: ArrayNames = "y"


class Dataset(Section):
    """The data: exactly one of `synthetic` and `npz`."""

    synthetic: Synthetic | None = None
    npz: Npz | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Dataset:
        if (self.synthetic is None) == (self.npz is None):
            raise ValueError("expected exactly one of synthetic and npz")
        return self


class Training(Section):
    optimizer: Named = "adam"
    loss: Named | None = None
    metrics: list[Named] = []
    jit_compile: bool | Literal["auto"] = "auto"
    effective_batch_size: Positive | None = None
    validation_batch_size: Annotated[
        Annotated[Positive, Tag("number")] | Annotated[Literal["same", "none"], Tag("text")],
        Discriminator(
            _shape_of, custom_error_type="size", custom_error_message="expected same, none or a whole number"
        ),
    ] = "same"
    run_eagerly: bool = False


class Search(Section):
    batch_size: Axis = Range(min=1, max=1024)
    sequence_length: Axis | None = None
    precision: Annotated[list[Precision], Field(min_length=1)] = ["float32"]
    remat: Annotated[list[Literal["none"]], Field(min_length=1, max_length=1)] = ["none"]
    objective: Literal["tokens", "batch_size", "sequence_length", "throughput"] = "tokens"
    resolution: Annotated[float, Field(ge=0, le=0.5)] = 0.02


class DeviceSection(Section):
    kind: Literal["auto", "gpu", "cpu"] = "auto"
    memory_limit: Annotated[
        Size | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else _size(value)),
        WithJsonSchema({"type": ["string", "integer"], "examples": ["auto", "2GiB"], "default": "auto"}),
    ] = "auto"
    like: str | None = Field(default=None, description="the budget of this card, from the catalogue")
    headroom: Annotated[float, Field(ge=0, lt=0.9)] = 0.05
    allocator: Literal["default", "cuda_malloc_async"] = "default"
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
    dataset: Dataset
    training: Training = Training()
    search: Search = Search()
    device: DeviceSection = DeviceSection()
    trial: TrialSection = TrialSection()
    tuned: Tuned | None = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec, for editors."""
    schema = Spec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
