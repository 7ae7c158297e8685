"""The one place that knows which kind of dataset is read how."""

from __future__ import annotations

from oomtune.domain import DatasetSpec
from oomtune.worker.data.arrays import npy_source, npz_source
from oomtune.worker.data.images import images_source
from oomtune.worker.data.source import Bounds, Source
from oomtune.worker.data.tables import csv_source, jsonl_source, text_source
from oomtune.worker.data.tfds import tfds_source
from oomtune.worker.data.tfrecord import tfrecord_source
from oomtune.worker.data.user_function import python_source


def open_source(dataset: DatasetSpec, folder: str, bounds: Bounds | None = None) -> Source:  # noqa: PLR0911
    """The dataset, opened but not read, except for arrays. Synthetic data is made for a candidate and has no source."""
    bounds = bounds or Bounds()
    match dataset:
        case DatasetSpec(npz=data) if data is not None:
            return npz_source(data, folder)
        case DatasetSpec(npy=data) if data is not None:
            return npy_source(data, folder)
        case DatasetSpec(csv=data) if data is not None:
            return csv_source(data, dataset.tokenizer, folder, bounds)
        case DatasetSpec(jsonl=data) if data is not None:
            return jsonl_source(data, dataset.tokenizer, folder, bounds)
        case DatasetSpec(text=data) if data is not None:
            return text_source(data, dataset.tokenizer, folder, bounds)
        case DatasetSpec(tfrecord=data) if data is not None:
            return tfrecord_source(data, dataset.tokenizer, folder, bounds)
        case DatasetSpec(images=data) if data is not None:
            return images_source(data, folder, bounds)
        case DatasetSpec(python=data) if data is not None:
            return python_source(data, folder, bounds)
        case DatasetSpec(tfds=data) if data is not None:
            return tfds_source(data, dataset.tokenizer, folder, bounds)
    raise ValueError("synthetic data is made for a candidate; there is nothing to open")
