"""`oomtune init [SPEC]`: write a commented spec to start from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from oomtune.cli import options
from oomtune.cli.streams import print_document
from oomtune.errors import UsageProblem

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SPEC|SOURCE", show_default=False,
        help="The spec to write, and what to make it from: a .keras file, module:function, or a script.",
    ),
]  # fmt: skip
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing spec.")]
AllowCode = Annotated[bool, typer.Option("--allow-code", help="Run the code in a saved model; only if you trust it.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing if the spec was written.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also show the spec, on stderr.")]


def command(
    words: Words = None,
    force: Force = False,
    allow_code: AllowCode = False,
    as_json: options.Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_color: options.NoColor = False,  # noqa: ARG001 - accepted everywhere, and nothing here has colours
) -> int:
    """Write a commented spec to start from.

    Describes a saved model, a function that builds one, a training script, or a small example model. Shapes and types
    are filled in where they can be determined.

    \b
    Examples:
      oomtune init
      oomtune init model.keras
      oomtune init spec.yaml my_package.models:build
      oomtune init train.py

    Exit codes: 0 written, 2 bad usage, 5 the spec can't be written, 6 the model can't be built.
    """
    from oomtune.commands.init import write_starter_spec

    spec, source = _spec_and_source(words or [])
    starter = write_starter_spec(spec, source, force=force, allow_code=allow_code)
    if starter.unset:
        names = ", ".join(starter.unset)
        print(f"oomtune: {source} requires {names}: fill in the SET_ values in {spec}", file=sys.stderr)
    if verbose:
        print(starter.text, end="", file=sys.stderr)
    if as_json:
        print_document("init", "written", spec_path=str(spec), source=source)
    elif not quiet:
        print(f"wrote {spec}; probe it with: oomtune probe {spec}")
    return 0


def _spec_and_source(words: list[str]) -> tuple[Path, str | None]:
    """Return the spec to write and what to make it from, in whichever order they were given."""
    specs = [word for word in words if word.endswith((".yaml", ".yml"))]
    sources = [word for word in words if word not in specs]
    if len(specs) > 1 or len(sources) > 1:
        raise UsageProblem("expected at most one spec and one source", hint="see: oomtune init --help")
    source = sources[0] if sources else None
    return Path(specs[0] if specs else f"{_stem(source)}.yaml"), source


def _stem(source: str | None) -> str:
    if source is None:
        return "model"
    module, colon, _ = source.partition(":")
    return module.rpartition(".")[2] if colon else Path(source).stem
