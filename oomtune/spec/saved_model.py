"""What a model that Keras saved says of its inputs, read without Keras: a spec asks too, before anything is built."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHAPES = ("batch_shape", "batch_input_shape")
# A file may be damaged or encrypted, packed in a way that Python can't unpack, or nested too deep.
UNREADABLE = (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)


def read_config(path: Path) -> Any:
    """The configuration in a `.keras` archive, or in the JSON text of `Model.to_json`. Raises what is `UNREADABLE`."""
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("config.json"))
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    raise ValueError(f"a {path.suffix} file is neither an archive nor JSON")


def takes_only_text(config: Any) -> bool:
    """Is every input of the model text?"""
    dtypes = [inner.get("dtype") for _, inner in input_layers(config)]
    return bool(dtypes) and all(dtype == "string" for dtype in dtypes)


def input_layers(config: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The configurations of the model's own inputs, not of those of the models inside it, each with the key that its
    shape is under."""
    own = config.get("config") if isinstance(config, dict) else None
    layers = own.get("layers") if isinstance(own, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        inner = layer.get("config") if isinstance(layer, dict) else None
        for key in SHAPES:
            if isinstance(inner, dict) and isinstance(inner.get(key), list):
                yield key, inner
