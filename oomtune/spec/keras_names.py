"""The names of Keras' layers and applications, read from its source: importing Keras would import TensorFlow."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path


def layer_names() -> frozenset[str]:
    """Every name in `keras.layers` of the Keras installed here; empty when it can't be read."""
    return _names_in("layers")


def application_names() -> frozenset[str]:
    """Every model in `keras.applications`; the modules there have names in lower case."""
    return frozenset(name for name in _names_in("applications") if name[0].isupper())


@cache
def _names_in(package: str) -> frozenset[str]:
    try:
        found = importlib.util.find_spec("keras")
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        return frozenset()
    source = Path(found.origin).parent / package / "__init__.py"
    if not source.is_file():
        return frozenset()
    imports = [node for node in ast.parse(source.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    return frozenset(alias.asname or alias.name for node in imports for alias in node.names)
