"""`oomtune schema`: the spec's JSON Schema, for editors."""

from __future__ import annotations

import json


def command() -> None:
    """Print the JSON Schema of a spec, for editors and linters."""
    from oomtune.spec.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
