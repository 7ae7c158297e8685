"""Read data as a scan does, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from oomtune.domain import DatasetSpec, Scan
from oomtune.errors import DataUnreadable
from oomtune.spec.dataset import Dataset, check_dataset, dataset_spec
from oomtune.worker.data.scan import scan
from oomtune.worker.data.source import Bounds, Sample
from tests.support.reading import Read


@pytest.fixture
def dataset(tmp_path: Path) -> Callable[..., DatasetSpec]:
    """Return a function that parses a `dataset` section and sends it through the pipe to the worker."""

    def parse(**section: Any) -> DatasetSpec:
        assert list(check_dataset(section, tmp_path)) == []
        adapter: TypeAdapter[DatasetSpec] = TypeAdapter(DatasetSpec)
        spec = dataset_spec(Dataset.model_validate(section))
        assert adapter.validate_json(adapter.dump_json(spec)) == spec
        return spec

    return parse


@pytest.fixture
def read(tmp_path: Path, dataset: Callable[..., DatasetSpec]) -> Read:
    def run(bounds: Bounds | None = None, **section: Any) -> tuple[Scan, list[Sample]]:
        return scan(dataset(**section), str(tmp_path), lambda count, share: None, bounds)

    return run


@pytest.fixture
def refused(read: Read) -> Callable[..., str]:
    def run(**section: Any) -> str:
        with pytest.raises(DataUnreadable) as caught:
            read(**section)
        assert caught.value.hint
        assert "dataset." in str(caught.value), "the message names the entry of the spec"
        return f"{caught.value} | {caught.value.hint}"

    return run
