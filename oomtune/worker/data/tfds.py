"""Datasets that TensorFlow Datasets has prepared on disk."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from oomtune.domain import ArrayNames, TfdsData, Tokenizer
from oomtune.errors import DataUnreadable
from oomtune.worker.data.problems import files_of, not_there, unreadable
from oomtune.worker.data.samples import Checker, Raw, finished, texts_in
from oomtune.worker.data.source import Axis, Bounds, Source, by_name, each
from oomtune.worker.data.tf_pipelines import axes_of, elements, pipeline_source
from oomtune.worker.data.tokens import tokenize_with

_DAMAGED = "a file of it is damaged or cut short: have TensorFlow Datasets prepare it again"
_INSTALLED_AS = {"tensorflow_datasets": "tensorflow-datasets"}


def tfds_source(data: TfdsData, tokenizer: Tokenizer, folder: str, bounds: Bounds) -> Source:
    path = files_of((data.path,), folder, "dataset.tfds.path", folders=True)[0]
    try:
        pipeline = _opened(data, path)
    except ModuleNotFoundError as error:
        # Not a dependency of ours: it is there where people use it. It asks for some packages only when it needs them.
        raise DataUnreadable(
            f"dataset.tfds needs the package tensorflow-datasets: no module named {error.name!r}",
            hint=f"pip install {_INSTALLED_AS.get(error.name or '', error.name)}",
        ) from None
    _refuse_features_that_cannot_be_read(pipeline, data, path)
    name = f"{path}, split {data.split}"

    def samples() -> Iterator[Raw]:
        for number, element in enumerate(elements(pipeline, f"{name} (dataset.tfds.path)", _DAMAGED), 1):
            where = f"{name}, sample {number}"
            inputs, targets = (_texts(element, names, where) for names in (data.inputs, data.targets))
            yield (inputs, targets), where

    tokenize = tokenize_with(tokenizer, folder, lambda: texts_in(samples()))
    checker = Checker("dataset.tfds", data.inputs, data.targets)
    source = pipeline_source(finished(samples(), checker, tokenize), pipeline, name, bounds)
    source.key = "dataset.tfds.path"
    specs = {key: pipeline.element_spec[feature] for key, feature in by_name(data.inputs).items()}
    source.axes = {key: Axis.VARIES if spec.dtype == tf.string else axes_of(spec)[""] for key, spec in specs.items()}
    targets = [pipeline.element_spec[feature] for feature in by_name(data.targets).values()]
    if all(spec.dtype != tf.string for spec in (*specs.values(), *targets)):
        source.dataset = pipeline.map(lambda element: (_picked(element, data.inputs), _picked(element, data.targets)))
    return source


def _opened(data: TfdsData, path: Path) -> tf.data.Dataset:
    library = importlib.import_module("tensorflow_datasets")
    try:
        builder = library.builder_from_directory(str(path))
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise unreadable(
            path, error, "dataset.tfds.path", "expected the folder of a version, which holds dataset_info.json"
        ) from None
    base = data.split.partition("[")[0]
    if "+" not in data.split and base != "all" and base not in builder.info.splits:
        raise not_there(path, "split", base, "dataset.tfds.split", list(builder.info.splits))
    try:
        return builder.as_dataset(split=data.split, shuffle_files=False)
    except (OSError, ValueError, KeyError, AssertionError, tf.errors.OpError) as error:
        raise unreadable(
            f"{path}, split {data.split}", error, "dataset.tfds.split", "check the split; nothing is downloaded"
        ) from None


def _refuse_features_that_cannot_be_read(pipeline: tf.data.Dataset, data: TfdsData, path: Path) -> None:
    features = pipeline.element_spec
    known = list(features) if isinstance(features, dict) else []
    for side, names in (("inputs", data.inputs), ("targets", data.targets)):
        for name in by_name(names).values():
            if name not in known:
                raise not_there(path, "feature", name, f"dataset.tfds.{side}", known)
            if not isinstance(features[name], tf.TensorSpec | tf.RaggedTensorSpec):
                raise DataUnreadable(
                    f"{path}: feature {name!r} holds features of its own, not one tensor (dataset.tfds.{side})",
                    hint="read it with dataset.python: a function that returns a tf.data.Dataset of what is inside",
                )


def _picked(element: dict[str, Any], names: ArrayNames) -> Any:
    return each(lambda name: element[name], names)


def _texts(element: dict[str, Any], names: ArrayNames, where: str) -> Any:
    return each(lambda name: _text(element[name], name, where), names)


def _text(value: Any, name: str, where: str) -> Any:
    if value.dtype.kind != "S":
        return value
    if value.ndim:
        raise DataUnreadable(f"{where}: feature {name!r} holds several texts", hint="expected one text a sample")
    try:
        return bytes(value.item()).decode("utf-8")
    except UnicodeDecodeError:
        reason = f"feature {name!r} is not UTF-8 text"
        raise unreadable(where, reason, "dataset.tfds", "choose another feature") from None
