"""What a spec's `dataset` names, as types, and what can be wrong with it although its types are right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oomtune import domain
from oomtune.spec import data_schema as schema
from oomtune.spec.model import Wrong, is_file


def wrong_in_dataset(dataset: Any, folder: Path) -> Iterator[Wrong]:
    npz = dataset.get("npz") if isinstance(dataset, dict) else None
    path = npz.get("path") if isinstance(npz, dict) else None
    if isinstance(path, str) and not is_file(folder / path):
        yield ("dataset", "npz", "path"), f"no such file: {folder / path}"


def dataset_spec(dataset: schema.Dataset) -> domain.DatasetSpec:
    if dataset.npz is not None:
        return domain.DatasetSpec(npz=domain.NpzData(**dataset.npz.model_dump()))
    assert dataset.synthetic is not None, "the schema lets exactly one through"
    return domain.DatasetSpec(
        synthetic=domain.SyntheticData(
            inputs=_tensors(dataset.synthetic.inputs), targets=_tensors(dataset.synthetic.targets)
        )
    )


def _tensors(tensors: schema.Tensor | dict[str, schema.Tensor]) -> domain.Tensors:
    if isinstance(tensors, dict):
        return {name: _tensor(tensor) for name, tensor in tensors.items()}
    return _tensor(tensors)


def _tensor(tensor: schema.Tensor) -> domain.TensorSpec:
    return domain.TensorSpec(shape=tuple(tensor.shape), dtype=tensor.dtype, max=tensor.max)
