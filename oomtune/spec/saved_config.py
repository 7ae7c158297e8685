"""Read the configuration of a model that Keras saved, without Keras."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHAPES = ("batch_shape", "batch_input_shape")
# A file may be damaged, encrypted, compressed in a way that Python can't read, or nested too deep.
UNREADABLE = (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_config(path: Path) -> Any:
    """Return the configuration of a `.keras` archive or a `Model.to_json` file. Raise one of `UNREADABLE`."""
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("config.json"))
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    raise ValueError(f"a {path.suffix} file is neither an archive nor JSON")


def is_text_model(path: Path) -> bool:
    """Return True if every input of the saved model is text, False if the file can't be read without Keras."""
    try:
        dtypes = [inner.get("dtype") for _, inner in input_layers(read_config(path))]
    except UNREADABLE:
        return False
    return bool(dtypes) and all(dtype == "string" for dtype in dtypes)


def input_layers(config: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each input of the model: the key of its shape, and its configuration. Skip inputs of nested models."""
    own = config.get("config") if isinstance(config, dict) else None
    layers = own.get("layers") if isinstance(own, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        inner = layer.get("config") if isinstance(layer, dict) else None
        for key in SHAPES:
            if isinstance(inner, dict) and isinstance(inner.get(key), list):
                yield key, inner
