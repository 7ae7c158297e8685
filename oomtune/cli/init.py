"""`oomtune init [SPEC]`: write a commented starter spec that probes as it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from oomtune.cli import options
from oomtune.errors import UsageProblem

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SPEC|SOURCE", show_default=False,
        help="The spec to write; and what to make it from: a .keras file, module:function, or a script.",
    ),
]  # fmt: skip


Force = Annotated[bool, typer.Option("--force", help="Overwrite a spec that is there.")]
AllowCode = Annotated[bool, typer.Option("--allow-code", help="Run the code in a saved model: only if you trust it.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Say nothing when all is well.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also show the spec, on stderr.")]


def command(
    words: Words = None,
    force: Force = False,
    allow_code: AllowCode = False,
    as_json: options.Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_color: options.NoColor = False,  # noqa: ARG001 - it has none
) -> int:
    """Write a commented starter spec: for a saved model, for a function that builds one, for a training script, or
    for a small model to begin with. Shapes and types are filled in as far as they can be seen.

    \b
    Examples:
      oomtune init
      oomtune init model.keras
      oomtune init spec.yaml my_package.models:build
      oomtune init train.py

    Exit codes: 0 written, 2 bad usage, 5 the spec can't be written, 6 the model can't be built.
    """
    from oomtune.commands.init import write_starter_spec

    spec, source = _told(words or [])
    starter = write_starter_spec(spec, source, force=force, allow_code=allow_code)
    if starter.unset:
        names = ", ".join(starter.unset)
        print(f"oomtune: {source} requires {names}: fill in the SET_ values in {spec}", file=sys.stderr)
    if verbose:
        print(starter.text, end="", file=sys.stderr)
    if as_json:
        from oomtune.report.json_document import json_document

        print(json.dumps(json_document("init", 0, "written", {"spec_path": str(spec), "source": source})))
    elif not quiet:
        print(f"wrote {spec}; probe it with: oomtune probe {spec}")
    return 0


def _told(words: list[str]) -> tuple[Path, str | None]:
    """The spec to write and what to make it from, in whichever order they were given."""
    specs = [word for word in words if word.endswith((".yaml", ".yml"))]
    sources = [word for word in words if word not in specs]
    if len(specs) > 1 or len(sources) > 1:
        raise UsageProblem("expected at most one spec and one source", hint="see: oomtune init --help")
    source = sources[0] if sources else None
    stem = "model" if source is None else Path(source.partition(":")[0].rpartition(".")[2]).stem
    if source is not None and ":" not in source:
        stem = Path(source).stem
    return Path(specs[0] if specs else f"{stem}.yaml"), source
