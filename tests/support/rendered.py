"""Read back what a report wrote: the data inside an HTML page, the values inside an event file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New


def page_data(page: str) -> dict[str, Any]:
    """Return the data that the page's script draws from."""
    element = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert element is not None
    assert not set("<>&") & set(element[1])
    data: dict[str, Any] = json.loads(element[1])
    return data


def event_values(folder: Path) -> dict[str, Any]:
    """Return the values in the event file of a folder, by tag."""
    (path,) = folder.glob("events.out.tfevents.*")
    reader = PyRecordReader_New(str(path))
    values: dict[str, Any] = {}
    while True:
        try:
            reader.GetNext()  # also verifies the checksums
        except Exception as end:  # noqa: BLE001 - TensorBoard's own end-of-file error
            assert type(end).__name__ == "OutOfRangeError"  # noqa: PT017
            return values
        for value in event_pb2.Event.FromString(reader.record()).summary.value:
            values[value.tag] = value
