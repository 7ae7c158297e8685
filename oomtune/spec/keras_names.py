"""The names of Keras' layers, read from its source: importing Keras would import TensorFlow."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path


@cache
def layer_names() -> frozenset[str]:
    """Every name in `keras.layers` of the Keras installed here; empty when it can't be read."""
    try:
        found = importlib.util.find_spec("keras")
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        return frozenset()
    source = Path(found.origin).parent / "layers" / "__init__.py"
    if not source.is_file():
        return frozenset()
    imports = [node for node in ast.parse(source.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    return frozenset(alias.asname or alias.name for node in imports for alias in node.names)
