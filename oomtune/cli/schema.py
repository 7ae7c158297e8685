"""`oomtune schema`: the JSON Schema of a spec, for editors; with specs, what is wrong with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from oomtune.cli import options
from oomtune.cli.streams import print_document

Specs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="SPEC", help="Specs to validate.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Accepted like everywhere; valid specs print nothing.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also name the valid specs, on stderr.")]


def command(
    specs: Specs = None,
    as_json: options.Json = False,
    quiet: Quiet = False,  # noqa: ARG001 - accepted everywhere, and there is nothing to leave out
    verbose: Verbose = False,
    no_color: options.NoColor = False,  # noqa: ARG001 - accepted everywhere, and nothing here has colours
) -> int:
    """Print the JSON Schema of a spec, for editors and linters.

    Given specs, validate them instead. Nothing is run.

    \b
    Examples:
      oomtune schema > oomtune.schema.json
      oomtune schema configs/*.yaml

    Exit codes: 0 printed, or all specs are valid, 2 a spec is not valid.
    """
    if not specs:
        from oomtune.spec.schema import json_schema

        print(json.dumps(json_schema(), indent=2))
        return 0
    from oomtune.commands.schema import validate_specs

    def show_valid(path: Path) -> None:
        if verbose:
            print(f"{path}: valid", file=sys.stderr)

    validate_specs(specs, show_valid)
    if as_json:
        print_document("schema", "valid", specs=[str(path) for path in specs])
    return 0
