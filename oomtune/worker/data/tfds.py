"""Read datasets that TensorFlow Datasets has prepared on disk. Nothing is downloaded."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from oomtune.domain import TfdsData, by_name
from oomtune.errors import DataUnreadable
from oomtune.worker.data.samples import Checker, RawSample, checked_samples
from oomtune.worker.data.source import Axis, Bounds, Stream, decode_text, each_side, files_of, missing, unreadable
from oomtune.worker.data.tf_pipelines import axes_of, elements, pipeline_stream

_PATH, _SPLIT = "dataset.tfds.path", "dataset.tfds.split"
_DAMAGED = "one of its files is damaged or cut short; let TensorFlow Datasets prepare it again"
_PIP_NAMES = {"tensorflow_datasets": "tensorflow-datasets"}


def tfds_source(data: TfdsData, folder: str, bounds: Bounds) -> Stream:
    path = files_of((data.path,), folder, _PATH, folders=True)[0]
    try:
        pipeline = _open(data, path)
    except ModuleNotFoundError as error:
        # An optional package that users of such data have. It imports some of its dependencies only when it needs them.
        raise DataUnreadable(
            f"dataset.tfds needs the package tensorflow-datasets: no module named {error.name!r}",
            hint=f"pip install {_PIP_NAMES.get(error.name or '', error.name)}",
        ) from None
    _check_features(pipeline, data, path)
    name = f"{path}, split {data.split}"

    def read() -> Iterator[RawSample]:
        for number, element in enumerate(elements(pipeline, f"{name} ({_PATH})", _DAMAGED), 1):
            yield _sample(element, data, f"{name}, sample {number}")

    checker = Checker("dataset.tfds", data.inputs, data.targets)
    samples = checked_samples(read(), checker, data.tokenizer, folder, reread=read)
    stream = pipeline_stream(samples, pipeline, name, bounds)
    stream.key = _PATH
    specs = {part: pipeline.element_spec[feature] for part, feature in by_name(data.inputs).items()}
    stream.axes = {part: Axis.VARIES if spec.dtype == tf.string else axes_of(spec)[""] for part, spec in specs.items()}
    targets = [pipeline.element_spec[feature] for feature in by_name(data.targets).values()]
    if all(spec.dtype != tf.string for spec in (*specs.values(), *targets)):
        stream.pipeline = pipeline.map(lambda element: each_side(data, lambda _, feature: element[feature]))
    return stream


def _open(data: TfdsData, path: Path) -> tf.data.Dataset:
    library = importlib.import_module("tensorflow_datasets")
    try:
        builder = library.builder_from_directory(str(path))
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise unreadable(
            path, error, _PATH, "expected the folder of a version, which contains dataset_info.json"
        ) from None
    base = data.split.partition("[")[0]
    if "+" not in data.split and base != "all" and base not in builder.info.splits:
        raise missing(path, "split", base, _SPLIT, list(builder.info.splits))
    try:
        return builder.as_dataset(split=data.split, shuffle_files=False)
    except (OSError, ValueError, KeyError, AssertionError, tf.errors.OpError) as error:
        raise unreadable(
            f"{path}, split {data.split}", error, _SPLIT, "check the split; nothing is downloaded"
        ) from None


def _check_features(pipeline: tf.data.Dataset, data: TfdsData, path: Path) -> None:
    features = pipeline.element_spec
    available = list(features) if isinstance(features, dict) else []
    for side, names in (("inputs", data.inputs), ("targets", data.targets)):
        for name in by_name(names).values():
            if name not in available:
                raise missing(path, "feature", name, f"dataset.tfds.{side}", available)
            if not isinstance(features[name], tf.TensorSpec | tf.RaggedTensorSpec):
                raise DataUnreadable(
                    f"{path}: feature {name!r} is a group of features, not one tensor (dataset.tfds.{side})",
                    hint="use dataset.python with a function that returns a tf.data.Dataset of the tensors inside",
                )


def _sample(element: dict[str, Any], data: TfdsData, where: str) -> RawSample:
    return each_side(data, lambda _, feature: _value(element[feature], feature, where)), where


def _value(value: Any, feature: str, where: str) -> Any:
    if value.dtype.kind != "S":
        return value
    if value.ndim:
        raise DataUnreadable(
            f"{where}: feature {feature!r} has several texts (dataset.tfds)", hint="expected one text per sample"
        )
    return decode_text(bytes(value.item()), feature, where, "dataset.tfds")
