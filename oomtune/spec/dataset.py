"""What a spec's `dataset` names, as types, and what can be wrong with it although its types are right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from oomtune import domain
from oomtune.spec import data_schema as schema
from oomtune.spec.files import found_at
from oomtune.spec.model import Wrong
from oomtune.spec.text import Path_

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
    """Yield every file that the dataset is read from, including all files in its folders."""
    match dataset:
        case domain.NpyData(inputs=inputs, targets=targets):
            for side in (inputs, targets):
                for paths in side.values() if isinstance(side, dict) else [side]:
                    yield from found_at(paths, folder)
        case domain.ImagesData(paths=roots):
            yield from _files_in(roots, folder)
        case domain.TfdsData(path=root):
            yield from _files_in([root], folder)
        case domain.SyntheticData() | domain.PythonData():
            pass
        case _:
            yield from found_at(dataset.paths, folder)
    tokenizer = getattr(dataset, "tokenizer", domain.Tokenizer())
    vocabulary = (tokenizer.vectorization or {}).get("vocabulary")
    if isinstance(vocabulary, str):
        yield from found_at([vocabulary], folder)


def _files_in(roots: Iterable[str], folder: Path) -> Iterator[Path]:
    for root in found_at(roots, folder, folders=True):
        yield from (path for path in root.rglob("*") if path.is_file())


def dataset_spec(dataset: schema.Dataset) -> domain.DatasetSpec:  # noqa: C901, PLR0911
    """Return the one kind of data that the section names."""
    tokenizer = domain.Tokenizer() if dataset.tokenizer is None else _tokenizer(dataset.tokenizer)
    match dataset.section:
        case schema.Synthetic() as data:
            return domain.SyntheticData(inputs=_each(_tensor, data.inputs), targets=_each(_tensor, data.targets))
        case schema.Npz() as data:
            return domain.NpzData(paths=_paths(data.path), inputs=data.inputs, targets=data.targets)
        case schema.Npy() as data:
            return domain.NpyData(inputs=_each(_paths, data.inputs), targets=_each(_paths, data.targets))
        case schema.Csv() as data:
            return domain.CsvData(
                paths=_paths(data.path),
                inputs=_each(_columns, data.inputs),
                targets=_each(_columns, data.targets),
                text=tuple(data.text),
                delimiter=data.delimiter,
                tokenizer=tokenizer,
            )
        case schema.Jsonl() as data:
            return domain.JsonlData(
                paths=_paths(data.path),
                inputs=_each(_columns, data.inputs),
                targets=_each(_columns, data.targets),
                text=tuple(data.text),
                tokenizer=tokenizer,
            )
        case schema.Text() as data:
            targets = data.targets if isinstance(data.targets, str) else _tensor(data.targets)
            return domain.TextData(paths=_paths(data.path), targets=targets, tokenizer=tokenizer)
        case schema.Tfrecord() as data:
            return domain.TfrecordData(
                paths=_paths(data.path),
                features={
                    name: domain.Feature(shape=tuple(feature.shape), dtype=feature.dtype)
                    for name, feature in data.features.items()
                },
                inputs=data.inputs,
                targets=data.targets,
                compression=data.compression,
                tokenizer=tokenizer,
            )
        case schema.Images() as data:
            height, width = data.size
            return domain.ImagesData(paths=_paths(data.path), size=(height, width), channels=data.channels)
        case schema.Tfds() as data:
            return domain.TfdsData(
                path=data.path, split=data.split, inputs=data.inputs, targets=data.targets, tokenizer=tokenizer
            )
        case str(function):
            return domain.PythonData(function=function)


def _each(convert: Callable[[Any], _Data], entries: Any) -> _Data | dict[str, _Data]:
    """Convert one entry, or each of several named entries."""
    return {name: convert(entry) for name, entry in entries.items()} if isinstance(entries, dict) else convert(entries)


def _tokenizer(tokenizer: schema.Tokenizer) -> domain.Tokenizer:
    return domain.Tokenizer(split=tokenizer.split, max=tokenizer.max, vectorization=tokenizer.TextVectorization)


def _paths(path: str | list[str]) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else tuple(path)


def _columns(columns: str | list[str]) -> domain.Columns:
    return columns if isinstance(columns, str) else tuple(columns)


def _tensor(tensor: schema.Tensor) -> domain.TensorSpec:
    return domain.TensorSpec(shape=tuple(tensor.shape), dtype=tensor.dtype, max=tensor.max)
