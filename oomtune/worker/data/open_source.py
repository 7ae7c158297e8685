"""The one place that knows which kind of dataset is read how."""

from __future__ import annotations

from oomtune.domain import (
    CsvData,
    DatasetSpec,
    ImagesData,
    JsonlData,
    NpyData,
    NpzData,
    PythonData,
    SyntheticData,
    TextData,
    TfdsData,
    TfrecordData,
)
from oomtune.worker.data.arrays import npy_source, npz_source
from oomtune.worker.data.images import images_source
from oomtune.worker.data.source import Bounds, Source
from oomtune.worker.data.tables import csv_source, jsonl_source, text_source
from oomtune.worker.data.tfds import tfds_source
from oomtune.worker.data.tfrecord import tfrecord_source
from oomtune.worker.data.user_function import python_source


def open_source(dataset: DatasetSpec, folder: str, bounds: Bounds | None = None) -> Source:  # noqa: C901, PLR0911
    """The dataset, opened but not read, except for arrays. Synthetic data is made for a candidate and has no source."""
    bounds = bounds or Bounds()
    match dataset:
        case NpzData():
            return npz_source(dataset, folder)
        case NpyData():
            return npy_source(dataset, folder)
        case CsvData():
            return csv_source(dataset, dataset.tokenizer, folder, bounds)
        case JsonlData():
            return jsonl_source(dataset, dataset.tokenizer, folder, bounds)
        case TextData():
            return text_source(dataset, dataset.tokenizer, folder, bounds)
        case TfrecordData():
            return tfrecord_source(dataset, dataset.tokenizer, folder, bounds)
        case ImagesData():
            return images_source(dataset, folder, bounds)
        case PythonData():
            return python_source(dataset.function, folder, bounds)
        case TfdsData():
            return tfds_source(dataset, dataset.tokenizer, folder, bounds)
        case SyntheticData():
            raise ValueError("synthetic data is made for a candidate; there is nothing to open")
