"""`oomtune explain SPEC`: where the memory goes, and what each remedy would save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from oomtune.cli import options
from oomtune.cli.streams import stdout_console

Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="The spec or a tuned config, a YAML file.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", metavar="N", help="Explain this batch size.", show_default=False)
]
SequenceLength = Annotated[
    int | None, typer.Option("--sequence-length", metavar="N", help="Explain this length.", show_default=False)
]


def command(
    context: typer.Context,
    spec: Spec,
    batch_size: BatchSize = None,
    sequence_length: SequenceLength = None,
    device: options.Device = None,
    memory_limit: options.MemoryLimit = None,
    like: options.Like = None,
    settings: options.Settings = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Measure where the memory of a model goes, how it grows, and what each remedy would save.

    Explains a tuned config at its answer, and any other spec at a batch that takes about half of the budget.

    \b
    Examples:
      oomtune explain model.yaml
      oomtune explain model.tuned.yaml --json
      oomtune explain model.yaml --batch-size 64 --memory-limit 2GiB

    Exit codes: 0 explained, 2 bad usage or spec, 3 nothing fits, 5 the environment, 6 the model or data is broken,
    130 interrupted.
    """
    from oomtune.cli.screen import explain_screen
    from oomtune.commands.explain import ExplainOptions, run_explain

    memory_limit, like = options.choose_limit(context, memory_limit, like)
    explain_options = ExplainOptions(
        device=device,
        memory_limit=memory_limit,
        like=like,
        settings=tuple(settings or ()),
        batch_size=batch_size,
        sequence_length=sequence_length,
    )
    with explain_screen(quiet=quiet, verbose=verbose, no_color=no_color) as observer:
        explanation = run_explain(spec, explain_options, observer)
    if as_json:
        from oomtune.report.json_document import explanation_document

        print(json.dumps(explanation_document(explanation)))
    else:
        from oomtune.report.terminal import print_explanation

        print_explanation(stdout_console(no_color=no_color), explanation)
    return 0
