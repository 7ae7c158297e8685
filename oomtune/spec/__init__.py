"""Parse a spec: YAML text in, a typed `ProbeSpec` out, and the line of every problem."""

from oomtune.spec.dataset import data_files
from oomtune.spec.loader import LoadedSpec, digest_of, load_spec
from oomtune.spec.model import named_modules
from oomtune.spec.schema import json_schema
from oomtune.spec.yaml_text import Document, read_document

__all__ = [
    "Document",
    "LoadedSpec",
    "data_files",
    "digest_of",
    "json_schema",
    "load_spec",
    "named_modules",
    "read_document",
]
