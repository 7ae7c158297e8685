"""A spec's `training` as types, and what can be wrong with it although its own types are right."""

from __future__ import annotations

from collections.abc import Iterator

from oomtune import domain
from oomtune.spec import schema
from oomtune.spec.search import class_name, named
from oomtune.spec.sections import KerasObject, Losses, Metrics
from oomtune.spec.text import Path_

Wrong = tuple[Path_, str]


def training_spec(spec: schema.Spec) -> domain.TrainingSpec:
    training = spec.training
    validation = training.validation_batch_size
    weights = training.loss_weights or []
    if isinstance(weights, dict):
        # In the order of the losses, which have the same names.
        weights = [weights[name] for name in training.loss or () if isinstance(name, str)]
    return domain.TrainingSpec(
        optimizer=named(training.optimizer),
        optimizer_choices=tuple((class_name(entry), named(entry)) for entry in spec.search.optimizer or ()),
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
    alone = [entry for entry in entries if isinstance(entry, str | KerasObject)]
    if not isinstance(metrics, dict) and len(alone) == len(entries):
        return tuple(map(named, alone))
    lists = [entry if isinstance(entry, list) else [] if entry is None else [entry] for entry in entries]
    each = tuple(tuple(map(named, several)) for several in lists)
    return domain.ByOutput(entries=each, names=tuple(metrics) if isinstance(metrics, dict) else ())


def wrong_in_training(spec: schema.Spec) -> Iterator[Wrong]:
    loss, weights = spec.training.loss, spec.training.loss_weights
    if loss is None and spec.training.metrics:
        yield ("training", "metrics"), "needs training.loss: without one the model is taken as it comes compiled"
    several = loss if isinstance(loss, list | dict) else ()
    if several and not any(several.values() if isinstance(several, dict) else several):
        yield ("training", "loss"), "expected a loss for at least one output"
    if weights is None:
        return
    path: Path_ = ("training", "loss_weights")
    if isinstance(loss, list) and isinstance(weights, list) and len(loss) != len(weights):
        yield path, f"expected as many as training.loss has, {len(loss)}; got {len(weights)}"
    elif isinstance(loss, dict) and isinstance(weights, dict):
        for name in sorted(weights.keys() ^ loss.keys()):
            yield (
                ((*path, name), f"training.loss has none for an output {name!r}")
                if name in weights
                else (path, f"expected one for each output of training.loss; {name!r} has none")
            )
    elif not (isinstance(loss, list) and isinstance(weights, list)):
        yield path, "expected the form that training.loss has: both a mapping by outputs, or both a list"
