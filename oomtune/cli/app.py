"""The command line: wires the commands, and turns every ending into words and an exit code."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import typer

from oomtune import __version__
from oomtune.cli import check, diagnose, doctor, explain, guide, init, probe, report, schema
from oomtune.cli.completion import shell_set_up
from oomtune.cli.streams import be_patient, to_nowhere
from oomtune.cli.typer_classes import Command, Commands
from oomtune.errors import (
    INTERRUPTED,
    EnvironmentProblem,
    OomtuneError,
    OutputNotWritable,
    SpecProblem,
    TrialCrashed,
    UsageProblem,
)

# The base of Typer's own errors. It has a public name only from Typer 0.29 on.
_TYPER_ERROR: type[Any] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="oomtune",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help is half of the time that --help takes
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("probe", cls=Command, short_help="Find the largest configuration that trains.")(probe.command)
app.command("explain", cls=Command, short_help="Where the memory goes, and what each remedy would save.")(
    explain.command
)
app.command("check", cls=Command, short_help="Does this config still fit? One verdict, for CI.")(check.command)
app.command("diagnose", cls=Command, short_help="Read a crash log: out of memory or not, and what to do.")(
    diagnose.command
)
app.command("report", cls=Command, short_help="Draw a finished probe again; list, compare, clean up.")(report.command)
app.command("doctor", cls=Command, short_help="Show the hardware and limits of this machine.")(doctor.command)
app.command("init", cls=Command, short_help="Write a commented starter spec.")(init.command)
app.command("schema", cls=Command, short_help="Print the JSON Schema of a spec, or say what is wrong with specs.")(
    schema.command
)
app.command("guide", cls=Command, short_help="Read the manual: search, data, scripts, CI and more.")(guide.command)


def _version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:  # a shell that completes what comes after it asks too
        print(f"oomtune {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Find the largest batch size, sequence length and precision that train without running out of memory.

    \b
    Examples:
      oomtune init model.yaml          write a spec to begin with
      oomtune probe model.yaml         find what fits, write model.tuned.yaml
      oomtune check model.tuned.yaml   does it still fit?
      oomtune diagnose train.log       why did it crash?

    Each command has its own --help.
    """


def main() -> NoReturn:
    """Run the command line and exit with the verdict's code."""
    # A polite kill is an interruption like Ctrl-C: workers end, the ledger is kept.
    signal.signal(signal.SIGTERM, _interrupt)
    be_patient()
    try:
        code = _run()
    except _TYPER_ERROR as error:
        code = fail(UsageProblem(error.format_message(), hint=f"see: oomtune{_known_command()} --help"))
    except (typer.Abort, KeyboardInterrupt):
        code = interrupted()
    except OomtuneError as error:
        code = fail(error)
    except Exception as error:  # noqa: BLE001 - the last resort: a bug of ours still gets its words and its exit code
        code = fail(_bug(error))
    sys.exit(code)


def _run() -> int:
    """Run the command that was asked for; an answer that nobody can receive is not an answer."""
    set_up = shell_set_up(sys.argv[1:])
    try:
        if set_up is not None:
            print(set_up)
        code = 0 if set_up is not None else app(prog_name="oomtune", standalone_mode=False)
        sys.stdout.flush()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename is None:  # only asking where we are names no file
            raise EnvironmentProblem("the current folder was removed", hint="change to one that is there") from None
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EBADF):
            raise
        to_nowhere(sys.stdout.fileno())
        raise OutputNotWritable(f"the answer can't be written to stdout: {error.strerror}") from None
    return code if isinstance(code, int) else 0


def _bug(error: Exception) -> OomtuneError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    if "OOMTUNE_DEBUG" in os.environ:
        traceback.print_exception(error)
    return OomtuneError(
        f"a bug in oomtune: {type(error).__name__}: {error}",
        where=where,
        hint="set OOMTUNE_DEBUG=1 to see the traceback, and report it" + ("; the ledger is kept" * _probes()),
    )


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _words() -> list[str]:
    """What was said to oomtune; what comes after `--` is said to a script."""
    words = sys.argv[1:]
    return words[: words.index("--")] if "--" in words else words


def _command() -> str:
    """The command that was meant, as far as the words tell."""
    return next((word for word in _words() if not word.startswith("-")), "")


def _probes() -> bool:
    """Is it the command that keeps a ledger?"""
    return _command() == "probe"


def _known_command() -> str:
    return f" {_command()}" if any(known.name == _command() for known in app.registered_commands) else ""


def interrupted() -> int:
    error = OomtuneError("interrupted", hint="the ledger is kept; the same command goes on from there" * _probes())
    error.code = "interrupted"
    _tell(error, INTERRUPTED)
    return INTERRUPTED


def fail(error: OomtuneError) -> int:
    _tell(error, error.exit_code)
    return error.exit_code


def _tell(error: OomtuneError, exit_code: int) -> None:
    """The error on stderr, and as the one JSON document when that was asked for."""
    if isinstance(error, TrialCrashed):
        print(error.traceback, end="", file=sys.stderr)  # the user's own code's
    for line in str(error).splitlines():
        print(f"oomtune: {line}", file=sys.stderr)
    if isinstance(error, SpecProblem) and len(error.problems) > 1:
        print(f"oomtune: {len(error.problems)} problems in all", file=sys.stderr)
    for line in error.hint.splitlines():
        print(f"  {line}", file=sys.stderr)
    if "--json" in _words():
        from oomtune.report.json_document import error_document

        with contextlib.suppress(OSError):  # stdout may be what failed
            print(json.dumps(error_document(_command(), exit_code, error)), flush=True)
