"""`oomtune check FILE`: does this config, tuned or plain, still fit? One verdict, for pipelines."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oomtune.cli import completion as completing
from oomtune.cli import options
from oomtune.errors import OomtuneError, OutputNotWritable

if TYPE_CHECKING:
    from oomtune.commands.report import CheckFiles
    from oomtune.domain import CheckResult

File = Annotated[Path, typer.Argument(metavar="FILE", help="A tuned config, or a spec.", show_default=False)]
Tolerance = Annotated[
    str, typer.Option("--tolerance", metavar="SHARE", help="How much more memory than before is well: 0.05 or 5%.")
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against", metavar="GPU", help="On the CPU, with this card's memory.", show_default=False,
        autocompletion=completing.gpus,
    ),
]  # fmt: skip
AllowDeviceChange = Annotated[
    bool, typer.Option("--allow-device-change", help="Check it here, though it was tuned on another device.")
]
Update = Annotated[
    bool,
    typer.Option("--update", help="Search anew from the known edge, or an edited spec, and rewrite the config."),
]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.", show_default=False)
]
Summary = Annotated[
    Path | None,
    typer.Option(
        "--summary", metavar="FILE", envvar="GITHUB_STEP_SUMMARY", help="Also append Markdown.", show_default=False
    ),
]
CodeQuality = Annotated[
    Path | None,
    typer.Option("--code-quality", metavar="FILE", help="Also write GitLab's code quality JSON.", show_default=False),
]


def command(
    context: typer.Context,
    file: File,
    device: options.Device = None,
    memory_limit: options.MemoryLimit = None,
    like: options.Like = None,
    settings: options.Settings = None,
    tolerance: Tolerance = "5%",
    against: Against = None,
    allow_device_change: AllowDeviceChange = False,
    update: Update = False,
    junit: Junit = None,
    summary: Summary = None,
    code_quality: CodeQuality = None,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Run a configuration once and say whether it still fits, and uses no more memory than it did.

    \b
    Examples:
      oomtune check model.tuned.yaml --junit oomtune.xml   in a pipeline
      oomtune check model.tuned.yaml --tolerance 10%       let it grow more
      oomtune check model.tuned.yaml --against T4          would it fit a T4?
      oomtune check model.tuned.yaml --update              tune again, rewrite
      oomtune check model.yaml --set search.batch_size=64

    Exit codes: 0 it fits or was updated, 1 a bug in oomtune, 2 bad usage or file, 4 it does not fit or uses more
    memory than it may, 5 another device, a card that can't be decided on here, no TensorFlow or a file that can't be
    written, 6 the model or data is broken, 130 interrupted.
    """
    from oomtune.commands.check import CheckOptions, run_check
    from oomtune.commands.report import CheckFiles

    files = CheckFiles(junit=junit, summary=summary, code_quality=code_quality)
    files.check(file, force=force)
    if against is not None:
        device, memory_limit, like = options.without_environment(
            context, device=device, memory_limit=memory_limit, like=like
        )
    memory_limit, like = options.one_limit(context, memory_limit, like)
    with _errors_told(file, files):
        wanted = CheckOptions(
            device=device,
            memory_limit=memory_limit,
            like=like,
            against=against,
            settings=tuple(settings or ()),
            tolerance=tolerance,
            allow_device_change=allow_device_change,
            update=update,
        )
        with options.screen(quiet=quiet, verbose=verbose, no_color=no_color) as observer:
            result = run_check(file, wanted, observer)
    from oomtune.report.check import check_report

    _annotate(files.write(check_report(result)))
    return _tell(result, as_json=as_json, no_color=no_color)


@contextlib.contextmanager
def _errors_told(file: Path, files: CheckFiles) -> Iterator[None]:
    """Whoever reads the pipeline and not its log is told also why there was no check."""
    try:
        yield
    except OomtuneError as error:
        from oomtune.report.check import failed_check_report

        with contextlib.suppress(OutputNotWritable):  # the first error is the one to tell
            _annotate(files.write(failed_check_report(str(file), error)))
        raise


def _annotate(annotation: str | None) -> None:
    if annotation is not None:
        print(annotation, file=sys.stderr)


def _tell(result: CheckResult, *, as_json: bool, no_color: bool) -> int:
    """The verdict on stdout, what went wrong on stderr, and the exit code."""
    from oomtune.report.check import check_message, check_rows, edit_notice
    from oomtune.report.json_document import check_document

    if result.problem is not None and result.exit_code:
        print(result.problem.traceback, end="", file=sys.stderr)
        where = f"{result.problem.where}: " if result.problem.where else ""
        print(f"oomtune: {where}{result.problem.message}", file=sys.stderr)
    if as_json:
        print(json.dumps(check_document(result)))
        return result.exit_code
    from rich.table import Table
    from rich.text import Text

    console = options.console_for("stdout", no_color=no_color)
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in check_rows(result):
        table.add_row(name, Text(value))
    said = check_message(result)
    console.print(Text(said.sentence, style="bold green" if result.exit_code == 0 else "bold red"))
    console.print(table)
    if result.spec_diff:
        console.print(Text("\n".join([edit_notice(result), *result.spec_diff, ""])))
    if said.hint:
        console.print(Text(f"next: {said.hint}"))
    return result.exit_code
