"""The shape of a spec's `model`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from oomtune.spec.sections import Section, shape_of

LayerEntry = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[dict[str, dict[str, Any] | None], Field(min_length=1, max_length=1), Tag("<mapping>")],
    Discriminator(
        shape_of,
        custom_error_type="layer",
        custom_error_message="expected a layer such as 'Dense: {units: 2}'",
    ),
]


class Application(Section):
    """A model of `keras.applications`."""

    name: str
    args: dict[str, Any] = Field({}, description="its arguments; no weights are downloaded")


class Script(Section):
    """A training script, run as it is until it has trained the trial's steps."""

    path: str = Field(pattern=r"\.py$")
    args: list[str | int | float] = Field([], description="{batch_size}, {sequence_length}, {precision} are filled in")
    fits: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="how many calls of Model.fit are measured, each for the trial's steps"
    )


InModule = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
_WAYS = ("layers", "builder", "keras_file", "application", "train_step", "script")


class Model(Section):
    """The model: exactly one of `layers`, `builder`, `keras_file`, `application`, `train_step` and `script`."""

    layers: Annotated[list[LayerEntry], Field(min_length=1)] | None = Field(
        None,
        description="Keras layers, or package.module:Class, in order; `inbound` names what a layer comes after",
    )
    builder: InModule | None = Field(None, description="package.module:function, found from the spec")
    args: dict[str, Any] = Field({}, description="arguments for the builder, or for what train_step names")
    keras_file: str | None = Field(
        None, pattern=r"\.(keras|h5|hdf5|json)$", description="a .keras or .h5 file, or the JSON of Model.to_json"
    )
    allow_code: bool = Field(False, description="may keras_file hold code: Lambda layers, classes of your own?")
    application: Application | None = None
    train_step: InModule | None = Field(
        None, description="package.module:factory; it returns a function that runs one step, or that and a validation"
    )
    script: Script | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Model:
        if sum(getattr(self, way) is not None for way in _WAYS) != 1:
            raise ValueError(f"expected exactly one of {', '.join(_WAYS[:-1])} and {_WAYS[-1]}")
        if self.builder is None and self.train_step is None and self.args:
            raise ValueError("args are for a builder or a train_step; the others take their own arguments")
        if self.keras_file is None and self.allow_code:
            raise ValueError("allow_code is for a keras_file")
        return self
