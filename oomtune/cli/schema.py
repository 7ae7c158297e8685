"""`oomtune schema`: the spec's JSON Schema, for editors; given specs, what is wrong with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from oomtune.cli import options

Specs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="SPEC", help="Specs to read, and nothing more.", show_default=False),
]


Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing when all is well, as it does anyway.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also name the specs with nothing wrong, on stderr.")]


def command(
    specs: Specs = None,
    as_json: options.Json = False,
    quiet: Quiet = False,  # noqa: ARG001 - there is nothing to leave out
    verbose: Verbose = False,
    no_color: options.NoColor = False,  # noqa: ARG001 - it has none
) -> int:
    """Print the JSON Schema of a spec, for editors and linters.

    Given specs, say instead what is wrong with them; nothing is run.

    \b
    Examples:
      oomtune schema > oomtune.schema.json
      oomtune schema configs/*.yaml

    Exit codes: 0 nothing is wrong, 2 something is.
    """
    if not specs:
        from oomtune.spec.schema import json_schema

        print(json.dumps(json_schema(), indent=2))
        return 0
    from oomtune.commands.schema import validate_specs

    def show_valid(path: Path) -> None:
        if verbose:
            print(f"{path}: nothing is wrong", file=sys.stderr)

    validate_specs(specs, show_valid)
    if as_json:
        from oomtune.report.json_document import json_document

        print(json.dumps(json_document("schema", 0, "valid", {"specs": [str(path) for path in specs]})))
    return 0
