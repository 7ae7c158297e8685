"""The shape of a spec's `dataset`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from oomtune.spec.sections import DType, Positive, Section, shape_of


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
        shape_of,
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
