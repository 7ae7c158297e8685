"""`oomtune explain SPEC`: where the memory goes, and what each remedy would save."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oomtune.cli import options

if TYPE_CHECKING:
    from oomtune.commands.explain import ExplainObserver

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
    """Show where the memory of a model goes, how it grows, and what each remedy would save, all measured.

    A tuned config is explained at its answer; any other spec at a batch that takes about half of the budget.

    \b
    Examples:
      oomtune explain model.yaml
      oomtune explain model.tuned.yaml --json
      oomtune explain model.yaml --batch-size 64 --memory-limit 2GiB

    Exit codes: 0 explained, 2 bad spec, 3 nothing fits, 5 the environment, 6 the model or data is broken,
    130 interrupted.
    """
    from oomtune.commands.explain import ExplainOptions, run_explain

    memory_limit, like = options.one_limit(context, memory_limit, like)
    wanted = ExplainOptions(
        device=device,
        memory_limit=memory_limit,
        like=like,
        settings=tuple(settings or ()),
        batch_size=batch_size,
        sequence_length=sequence_length,
    )
    with _screen(quiet=quiet, verbose=verbose, no_color=no_color) as observer:
        explanation = run_explain(spec, wanted, observer)
    if as_json:
        from oomtune.report.json_document import explanation_document

        print(json.dumps(explanation_document(explanation)))
    else:
        from oomtune.report.terminal import print_explanation

        print_explanation(options.console_for("stdout", no_color=no_color), explanation)
    return 0


@contextlib.contextmanager
def _screen(*, quiet: bool, verbose: bool, no_color: bool) -> Iterator[ExplainObserver]:
    if quiet:
        from oomtune.commands.explain import SilentExplainObserver

        yield SilentExplainObserver()
        return
    from oomtune.cli.explain_screen import ExplainLines, ExplainStatus

    console = options.console_for("stderr", no_color=no_color)
    if console.is_terminal and not verbose:
        with ExplainStatus(console) as screen:
            yield screen
    else:
        yield ExplainLines(console, details=verbose)
