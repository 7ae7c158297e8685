"""`oomtune check FILE`: does this config, tuned or plain, still fit? One verdict, for CI."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oomtune.cli import options
from oomtune.cli.streams import facts_table, print_problem, stdout_console
from oomtune.errors import OomtuneError, OutputNotWritable

if TYPE_CHECKING:
    from oomtune.commands.report import CheckFiles
    from oomtune.domain import CheckResult

File = Annotated[Path, typer.Argument(metavar="FILE", help="A tuned config, or a spec.", show_default=False)]
Tolerance = Annotated[
    str, typer.Option("--tolerance", metavar="SHARE", help="How much the peak may have grown: 0.05 or 5%.")
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against", metavar="GPU", help="Check on the CPU, with this card's memory.", show_default=False,
        autocompletion=options.complete_gpus,
    ),
]  # fmt: skip
AllowDeviceChange = Annotated[
    bool, typer.Option("--allow-device-change", help="Check here even if it was tuned on another device.")
]
Update = Annotated[
    bool, typer.Option("--update", help="Search again from the known edge, or the edited spec, and rewrite FILE.")
]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.", show_default=False)]
Summary = Annotated[
    Path | None,
    typer.Option(
        "--summary", metavar="FILE", envvar="GITHUB_STEP_SUMMARY", help="Append Markdown.", show_default=False
    ),
]
CodeQuality = Annotated[
    Path | None,
    typer.Option("--code-quality", metavar="FILE", help="Write GitLab's code quality JSON.", show_default=False),
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
    """Run a configuration once, and check that it still fits and needs no more memory than before.

    \b
    Examples:
      oomtune check model.tuned.yaml --junit oomtune.xml   in a pipeline
      oomtune check model.tuned.yaml --tolerance 10%       allow more growth
      oomtune check model.tuned.yaml --against T4          would it fit a T4?
      oomtune check model.tuned.yaml --update              search again
      oomtune check model.yaml --set search.batch_size=64

    Exit codes: 0 it fits or was updated, 1 a bug in oomtune, 2 bad usage or file, 4 it does not fit or uses more
    memory than allowed, 5 the environment: another device, an undecidable card, no TensorFlow, or a file that can't
    be written, 6 the model or data is broken, 130 interrupted.
    """
    from oomtune.cli.screen import probe_screen
    from oomtune.commands.check import CheckOptions, run_check
    from oomtune.commands.report import CheckFiles

    files = CheckFiles(junit=junit, summary=summary, code_quality=code_quality)
    files.check(file, force=force)
    if against is not None:
        device, memory_limit, like = options.drop_environment(
            context, device=device, memory_limit=memory_limit, like=like
        )
    memory_limit, like = options.choose_limit(context, memory_limit, like)
    with _errors_in_files(file, files):
        check_options = CheckOptions(
            device=device, memory_limit=memory_limit, like=like, against=against, settings=tuple(settings or ()),
            tolerance=tolerance, allow_device_change=allow_device_change, update=update,
        )  # fmt: skip
        with probe_screen(quiet=quiet, verbose=verbose, no_color=no_color) as observer:
            result = run_check(file, check_options, observer)
    _write_files(result, files)
    _print_result(result, as_json=as_json, no_color=no_color)
    return result.exit_code


@contextlib.contextmanager
def _errors_in_files(file: Path, files: CheckFiles) -> Iterator[None]:
    """Write an error to the files too, for those who read the pipeline's pages and not its log."""
    try:
        yield
    except OomtuneError as error:
        from oomtune.report.check import failed_check_report

        with contextlib.suppress(OutputNotWritable):  # the first error is the one to report
            _print_annotation(files.write(failed_check_report(str(file), error)))
        raise


def _write_files(result: CheckResult, files: CheckFiles) -> None:
    from oomtune.report.check import check_report

    _print_annotation(files.write(check_report(result)))


def _print_annotation(annotation: str | None) -> None:
    """Print the command by which GitHub marks the line at fault."""
    if annotation is not None:
        print(annotation, file=sys.stderr)


def _print_result(result: CheckResult, *, as_json: bool, no_color: bool) -> None:
    """Print the verdict on stdout, and what went wrong on stderr."""
    problem = result.problem
    if problem is not None and result.exit_code:
        text = f"{problem.where}: {problem.message}" if problem.where else problem.message
        print_problem(text, traceback=problem.traceback)
    if as_json:
        from oomtune.report.json_document import check_document

        print(json.dumps(check_document(result)))
        return
    from rich.text import Text

    from oomtune.report.check import check_message, check_rows, edit_notice

    console = stdout_console(no_color=no_color)
    message = check_message(result)
    console.print(Text(message.sentence, style="bold green" if result.exit_code == 0 else "bold red"))
    console.print(facts_table(check_rows(result)))
    if result.spec_diff:
        console.print(Text("\n".join([edit_notice(result), *result.spec_diff, ""])))
    if message.hint:
        console.print(Text(f"next: {message.hint}"))
