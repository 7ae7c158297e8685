"""Read every kind of data, find the longest samples, and make the worst batch for a trial."""

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
from oomtune.worker.data.csv_files import csv_source
from oomtune.worker.data.images import images_source
from oomtune.worker.data.jsonl_files import jsonl_source
from oomtune.worker.data.source import Bounds, Source
from oomtune.worker.data.text_files import text_source
from oomtune.worker.data.tfds import tfds_source
from oomtune.worker.data.tfrecord import tfrecord_source
from oomtune.worker.data.user_function import python_source


def open_source(dataset: DatasetSpec, folder: str, bounds: Bounds | None = None) -> Source:  # noqa: C901, PLR0911
    """Open the dataset. Arrays are read now, other data as its samples are consumed."""
    bounds = bounds or Bounds()
    match dataset:
        case NpzData():
            return npz_source(dataset, folder)
        case NpyData():
            return npy_source(dataset, folder)
        case CsvData():
            return csv_source(dataset, folder, bounds)
        case JsonlData():
            return jsonl_source(dataset, folder, bounds)
        case TextData():
            return text_source(dataset, folder, bounds)
        case TfrecordData():
            return tfrecord_source(dataset, folder, bounds)
        case ImagesData():
            return images_source(dataset, folder, bounds)
        case PythonData():
            return python_source(dataset, folder, bounds)
        case TfdsData():
            return tfds_source(dataset, folder, bounds)
        case SyntheticData():
            raise ValueError("synthetic data is made for a candidate and has no source")
