"""`oomtune init [SPEC]`: write a commented starter spec that probes as it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from oomtune.cli import options
from oomtune.errors import UsageProblem
from oomtune.spec.files import is_file, is_there
from oomtune.storage.atomic import write_whole

_SAVED = (".keras", ".h5", ".hdf5", ".json")
# A builder that takes a length is given one that no other dimension is likely to have.
_LENGTH = 137
_TIMEOUT_S = 600.0

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
    spec, source = _told(words or [])
    if is_there(spec) and not force:
        raise UsageProblem(f"{spec} exists and is left as it is", hint="give another name, or --force")
    text, unset = _text(spec, source, allow_code)
    write_whole(spec, text, hint="give another name")
    if unset:
        print(f"oomtune: {source} requires {', '.join(unset)}: set what begins with SET_ in {spec}", file=sys.stderr)
    if verbose:
        print(text, end="", file=sys.stderr)
    if as_json:
        from oomtune.report.document import json_document

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


def _text(spec: Path, source: str | None, allow_code: bool) -> tuple[str, tuple[str, ...]]:
    """The spec, and what the user has to fill in."""
    from oomtune.commands.init import starter

    if allow_code and not (source or "").endswith(_SAVED):
        raise UsageProblem("--allow-code is for a saved model", hint="leave it out")
    if source is None:
        return starter.starter(str(spec)), ()
    if source.endswith(".py"):
        return _for_script(spec, source)
    way = "builder" if ":" in source else "keras_file"
    if (way == "keras_file" and not source.endswith(_SAVED)) or "" in source.split(":"):
        raise UsageProblem(
            f"{source}: expected a .keras file, module:function, a .py script, or nothing",
            hint="see: oomtune init --help",
        )
    return _for_model(spec, way, source, allow_code), ()


def _for_script(spec: Path, source: str) -> tuple[str, tuple[str, ...]]:
    from oomtune.commands.init import starter

    try:
        made = starter.from_script(str(spec), _from(spec, source), Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise UsageProblem(f"{source} can't be read: {error}") from None
    if made is None:
        raise UsageProblem(
            f"{source} has no option for its batch size", hint="give it one, such as --batch-size, and try again"
        )
    return made.text, made.unset


def _for_model(spec: Path, way: str, source: str, allow_code: bool) -> str:
    from oomtune.commands.init import starter
    from oomtune.domain import Builder, Inspection, InspectOrder, KerasFile
    from oomtune.trials.ask import ask
    from oomtune.trials.worker_host import WorkerHost

    named = source if way == "builder" else _from(spec, source)
    if way == "keras_file" and not is_file(Path(source)):
        raise UsageProblem(f"no such file: {source}")
    host = WorkerHost("spawn", {"CUDA_VISIBLE_DEVICES": "-1"})
    try:
        order = InspectOrder(
            model=Builder(function=source) if way == "builder" else KerasFile(path=named, allow_code=allow_code),
            folder=str(spec.resolve().parent),
            sequence_length=_LENGTH if way == "builder" else None,
        )
        seen = ask(host, "inspect", order, Inspection, timeout_s=_TIMEOUT_S)
    finally:
        host.close()
    return starter.from_model(str(spec), way, named, seen, allow_code=allow_code)


def _from(spec: Path, source: str) -> str:
    """The source as the spec has to name it: paths are relative to the spec."""
    import os

    return os.path.relpath(Path(source).resolve(), spec.resolve().parent)
