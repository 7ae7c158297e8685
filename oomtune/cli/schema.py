"""`oomtune schema`: the spec's JSON Schema, for editors."""

from __future__ import annotations

import json

from oomtune.cli import options


def command(as_json: options.Json = True) -> None:  # noqa: ARG001 - it is JSON, asked for or not
    """Print the JSON Schema of a spec, for editors and linters."""
    from oomtune.spec.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
