"""The `training` section: its schema, its conversion, and the checks of losses, weights and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from oomtune import domain
from oomtune.spec.fields import KerasObject, Mistake, Named, Positive, Section, class_name, named, shape_of
from oomtune.spec.yaml_text import KeyPath

_OBJECT_KEYS = KerasObject.model_fields.keys()


def _loss_form(value: Any) -> str | None:
    """Return the tag of the loss's form. A mapping without the keys of a Keras object maps outputs to losses."""
    if isinstance(value, dict) and not _OBJECT_KEYS & value.keys():
        return "<outputs>"
    return shape_of(value)


_NOT_AN_OBJECT: dict[str, Any] = {"propertyNames": {"minLength": 1, "not": {"enum": sorted(_OBJECT_KEYS)}}}
_OutputName = Annotated[str, Field(min_length=1)]
Losses = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[KerasObject, Tag("<mapping>")]
    | Annotated[list[Named | None], Field(min_length=1), Tag("<list>")]
    | Annotated[
        dict[_OutputName, Named | None], Field(min_length=1, json_schema_extra=_NOT_AN_OBJECT), Tag("<outputs>")
    ],
    Discriminator(
        _loss_form,
        custom_error_type="named",
        custom_error_message="expected a Keras name, a mapping with class_name and config, or one for each output: a "
        "mapping by their names, or a list in their order",
    ),
]
_MetricsOfOutput = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[KerasObject, Tag("<mapping>")] | Annotated[list[Named], Tag("<list>")],
    Discriminator(
        shape_of,
        custom_error_type="named",
        custom_error_message="expected a Keras name, a mapping with class_name and config, or a list of them",
    ),
]
Metrics = Annotated[
    Annotated[list[_MetricsOfOutput | None], Tag("<list>")]
    | Annotated[dict[_OutputName, _MetricsOfOutput | None], Tag("<mapping>")],
    Discriminator(
        shape_of,
        custom_error_type="named",
        custom_error_message="expected a list of metrics, or a mapping from the names of outputs to their metrics",
    ),
]
_Weight = Annotated[float, Field(allow_inf_nan=False)]
_Weights = Annotated[
    Annotated[list[_Weight], Tag("<list>")] | Annotated[dict[_OutputName, _Weight], Tag("<mapping>")],
    Discriminator(
        shape_of,
        custom_error_type="named",
        custom_error_message="expected a number for each output, in the same form as training.loss: a mapping by "
        "their names, or a list in their order",
    ),
]


class Training(Section):
    optimizer: Named = "adam"
    loss: Losses | None = Field(default=None, description="a loss, or one for each output by name, or in a list")
    loss_weights: _Weights | None = Field(default=None, description="a number for each of several losses")
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


def training_spec(training: Training, choices: list[str | KerasObject] | None) -> domain.TrainingSpec:
    """Convert the section. `choices` are the optimizers that the search may choose from."""
    validation = training.validation_batch_size
    weights = training.loss_weights or []
    if isinstance(weights, dict):
        # In the order of the losses, which have the same names.
        weights = [weights[name] for name in training.loss or () if isinstance(name, str)]
    return domain.TrainingSpec(
        optimizer=named(training.optimizer),
        optimizer_choices=tuple((class_name(entry), named(entry)) for entry in choices or ()),
        loss=None if training.loss is None else _losses(training.loss),
        loss_weights=tuple(weights),
        metrics=_metrics(training.metrics),
        jit_compile=None if training.jit_compile == "auto" else training.jit_compile,
        effective_batch_size=training.effective_batch_size,
        validation_batch_size={"same": None, "none": 0}[validation] if isinstance(validation, str) else validation,
        run_eagerly=training.run_eagerly,
    )


def _losses(loss: Losses) -> str | domain.ClassConfig | domain.ByOutput:
    if isinstance(loss, str | KerasObject):
        return named(loss)
    entries = loss.values() if isinstance(loss, dict) else loss
    each = tuple(() if entry is None else (named(entry),) for entry in entries)
    return domain.ByOutput(entries=each, names=tuple(loss) if isinstance(loss, dict) else ())


def _metrics(metrics: Metrics) -> tuple[str | domain.ClassConfig, ...] | domain.ByOutput:
    entries = list(metrics.values() if isinstance(metrics, dict) else metrics)
    single = [entry for entry in entries if isinstance(entry, str | KerasObject)]
    if not isinstance(metrics, dict) and len(single) == len(entries):
        return tuple(map(named, single))
    lists = [entry if isinstance(entry, list) else [] if entry is None else [entry] for entry in entries]
    each = tuple(tuple(map(named, several)) for several in lists)
    return domain.ByOutput(entries=each, names=tuple(metrics) if isinstance(metrics, dict) else ())


def check_training(training: Training) -> Iterator[Mistake]:
    """Yield the mistakes between the losses, their weights and the metrics."""
    loss, weights = training.loss, training.loss_weights
    if loss is None and training.metrics:
        yield ("training", "metrics"), "needs training.loss; without a loss the model keeps what it was compiled with"
    several = loss if isinstance(loss, list | dict) else ()
    if several and not any(several.values() if isinstance(several, dict) else several):
        yield ("training", "loss"), "expected a loss for at least one output"
    if weights is None:
        return
    path: KeyPath = ("training", "loss_weights")
    if isinstance(loss, list) and isinstance(weights, list) and len(loss) != len(weights):
        yield path, f"expected a weight for each loss of training.loss, {len(loss)}; got {len(weights)}"
    elif isinstance(loss, dict) and isinstance(weights, dict):
        for name in sorted(weights.keys() - loss.keys()):
            yield (*path, name), f"training.loss has no loss for an output {name!r}"
        for name in sorted(loss.keys() - weights.keys()):
            yield path, f"expected a weight for each output of training.loss; {name!r} has none"
    elif not (isinstance(loss, list) and isinstance(weights, list)):
        yield path, "expected the same form as training.loss: both a mapping by output, or both a list"
