"""What a spec's `dataset` names, as types, and what can be wrong with it although its types are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from oomtune import domain
from oomtune.spec import data_schema as schema
from oomtune.spec.files import found_at
from oomtune.spec.model import Wrong
from oomtune.spec.text import Path_

_Section = TypeVar("_Section")
_Data = TypeVar("_Data")

_WITH_FILES = ("npz", "csv", "jsonl", "text", "tfrecord")
_WITH_FOLDERS = ("images", "tfds")


def wrong_in_dataset(dataset: Any, folder: Path) -> Iterator[Wrong]:
    if not isinstance(dataset, dict):
        return
    for kind in (*_WITH_FILES, *_WITH_FOLDERS):
        section = dataset.get(kind)
        if isinstance(section, dict):
            yield from _nothing_there(section.get("path"), ("dataset", kind, "path"), folder, kind in _WITH_FOLDERS)
    for key in ("inputs", "targets"):
        entry = dataset["npy"].get(key) if isinstance(dataset.get("npy"), dict) else None
        for name, paths in entry.items() if isinstance(entry, dict) else [(None, entry)]:
            yield from _nothing_there(paths, ("dataset", "npy", key, *([] if name is None else [name])), folder, False)
    yield from _wrong_tokenizer(dataset, folder)


def _nothing_there(paths: Any, at: Path_, folder: Path, folders: bool) -> Iterator[Wrong]:
    """The paths and patterns that stand for nothing."""
    entries: list[tuple[Path_, Any]] = [(at, paths)]
    if isinstance(paths, list):
        entries = [((*at, index), path) for index, path in enumerate(paths)]
    for place, path in entries:
        if isinstance(path, str) and not found_at([path], folder, folders=folders):
            yield place, f"no such {'folder' if folders else 'file'}: {folder / path}"


def _wrong_tokenizer(dataset: dict[str, Any], folder: Path) -> Iterator[Wrong]:
    tokenizer = dataset.get("tokenizer")
    if tokenizer is None:
        return
    kinds = [kind for kind in schema.KINDS if dataset.get(kind) is not None]
    if len(kinds) == 1 and (why := _without_text(kinds[0], dataset[kinds[0]])):
        yield ("dataset", "tokenizer"), f"{why}; remove tokenizer"
    lines = dataset.get("text")
    if isinstance(tokenizer, dict) and tokenizer.get("split") == "none" and isinstance(lines, dict):
        targets = lines.get("targets", "next")
        if targets in ("next", "same"):
            yield (
                ("dataset", "text", "targets"),
                f"text that is not split has no tokens to be targets; got {targets!r}; expected a tensor",
            )
    layer = tokenizer.get("TextVectorization") if isinstance(tokenizer, dict) else None
    vocabulary = layer.get("vocabulary") if isinstance(layer, dict) else None
    if isinstance(vocabulary, str):
        yield from _nothing_there(
            vocabulary, ("dataset", "tokenizer", "TextVectorization", "vocabulary"), folder, False
        )


def _without_text(kind: str, section: Any) -> str:
    """Why data of this kind has no text to make tokens of; empty when it may have some."""
    if kind in ("jsonl", "text", "tfds"):
        return ""
    if kind == "csv":
        return "" if isinstance(section, dict) and section.get("text") else "dataset.csv.text names no column"
    if kind == "tfrecord":
        features = section.get("features") if isinstance(section, dict) else None
        listed = features.values() if isinstance(features, dict) else []
        strings = [feature for feature in listed if isinstance(feature, dict) and feature.get("dtype") == "string"]
        return "" if strings else "no feature of dataset.tfrecord is a string"
    return f"dataset.{kind} holds no text that is read here"


def data_files(dataset: domain.DatasetSpec, folder: Path) -> Iterator[Path]:
    """Every file that the dataset is read from. Of folders it is the files in them."""
    arrays = dataset.npy
    sides = [] if arrays is None else [arrays.inputs, arrays.targets]
    for side in sides:
        for paths in side.values() if isinstance(side, dict) else [side]:
            yield from found_at(paths, folder)
    for data in (dataset.npz, dataset.csv, dataset.jsonl, dataset.text, dataset.tfrecord):
        yield from () if data is None else found_at(data.paths, folder)
    folders = [*(dataset.images.paths if dataset.images else ()), *([dataset.tfds.path] if dataset.tfds else [])]
    for root in found_at(folders, folder, folders=True):
        yield from (path for path in root.rglob("*") if path.is_file())
    vocabulary = (dataset.tokenizer.vectorization or {}).get("vocabulary")
    if isinstance(vocabulary, str):
        yield from found_at([vocabulary], folder)


def dataset_spec(dataset: schema.Dataset) -> domain.DatasetSpec:
    return domain.DatasetSpec(
        synthetic=_if_set(_synthetic, dataset.synthetic),
        npz=_if_set(_npz, dataset.npz),
        npy=_if_set(_npy, dataset.npy),
        csv=_if_set(_csv, dataset.csv),
        jsonl=_if_set(_jsonl, dataset.jsonl),
        text=_if_set(_text, dataset.text),
        tfrecord=_if_set(_tfrecord, dataset.tfrecord),
        images=_if_set(_images, dataset.images),
        python=dataset.python,
        tfds=_if_set(_tfds, dataset.tfds),
        tokenizer=_if_set(_tokenizer, dataset.tokenizer) or domain.Tokenizer(),
    )


def _each(convert: Callable[[Any], _Data], entries: Any) -> _Data | dict[str, _Data]:
    """Of one entry, or of each of several by their names."""
    return {name: convert(entry) for name, entry in entries.items()} if isinstance(entries, dict) else convert(entries)


def _if_set(convert: Callable[[_Section], _Data], section: _Section | None) -> _Data | None:
    return None if section is None else convert(section)


def _synthetic(data: schema.Synthetic) -> domain.SyntheticData:
    return domain.SyntheticData(inputs=_tensors(data.inputs), targets=_tensors(data.targets))


def _npz(data: schema.Npz) -> domain.NpzData:
    return domain.NpzData(paths=_paths(data.path), inputs=data.inputs, targets=data.targets)


def _npy(data: schema.Npy) -> domain.NpyData:
    return domain.NpyData(inputs=_paths_by_name(data.inputs), targets=_paths_by_name(data.targets))


def _csv(data: schema.Csv) -> domain.CsvData:
    return domain.CsvData(
        paths=_paths(data.path),
        inputs=_names(data.inputs),
        targets=_names(data.targets),
        text=tuple(data.text),
        delimiter=data.delimiter,
    )


def _jsonl(data: schema.Jsonl) -> domain.JsonlData:
    return domain.JsonlData(
        paths=_paths(data.path), inputs=_names(data.inputs), targets=_names(data.targets), text=tuple(data.text)
    )


def _text(data: schema.Text) -> domain.TextData:
    targets = data.targets if isinstance(data.targets, str) else _tensor(data.targets)
    return domain.TextData(paths=_paths(data.path), targets=targets)


def _tfrecord(data: schema.Tfrecord) -> domain.TfrecordData:
    features = {
        name: domain.Feature(shape=tuple(feature.shape), dtype=feature.dtype) for name, feature in data.features.items()
    }
    return domain.TfrecordData(
        paths=_paths(data.path),
        features=features,
        inputs=data.inputs,
        targets=data.targets,
        compression=data.compression,
    )


def _images(data: schema.Images) -> domain.ImagesData:
    height, width = data.size
    return domain.ImagesData(paths=_paths(data.path), size=(height, width), channels=data.channels)


def _tfds(data: schema.Tfds) -> domain.TfdsData:
    return domain.TfdsData(path=data.path, split=data.split, inputs=data.inputs, targets=data.targets)


def _tokenizer(tokenizer: schema.Tokenizer) -> domain.Tokenizer:
    return domain.Tokenizer(split=tokenizer.split, max=tokenizer.max, vectorization=tokenizer.TextVectorization)


def _paths(path: str | list[str]) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else tuple(path)


def _paths_by_name(
    paths: str | list[str] | dict[str, str | list[str]],
) -> tuple[str, ...] | dict[str, tuple[str, ...]]:
    return _each(_paths, paths)


def _names(names: str | list[str] | dict[str, str | list[str]]) -> domain.Names:
    return _each(_columns, names)


def _columns(columns: str | list[str]) -> domain.Columns:
    return columns if isinstance(columns, str) else tuple(columns)


def _tensors(tensors: schema.Tensor | dict[str, schema.Tensor]) -> domain.Tensors:
    return _each(_tensor, tensors)


def _tensor(tensor: schema.Tensor) -> domain.TensorSpec:
    return domain.TensorSpec(shape=tuple(tensor.shape), dtype=tensor.dtype, max=tensor.max)
