"""The border: YAML text in, `ProbeSpec` out. Past here there are no dictionaries with optional keys."""

from oomtune.spec.dataset import data_files
from oomtune.spec.loader import LoadedSpec, load_spec
from oomtune.spec.model import named_modules
from oomtune.spec.schema import json_schema

__all__ = ["LoadedSpec", "data_files", "json_schema", "load_spec", "named_modules"]
