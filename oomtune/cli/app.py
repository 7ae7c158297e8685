"""`oomtune`: the list of commands, and `main`, which turns every ending into a message and an exit code."""

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
from typing import NoReturn

import typer

from oomtune import __version__
from oomtune.cli import check, diagnose, doctor, explain, guide, init, probe, report, schema
from oomtune.cli.private_typer import (
    PROGRAM,
    SHELLS,
    Command,
    CommandGroup,
    TyperError,
    completion_script,
    current_shell,
    install_completion,
)
from oomtune.cli.streams import discard, make_streams_last, print_problem
from oomtune.errors import (
    INTERRUPTED,
    EnvironmentProblem,
    OomtuneError,
    OutputNotWritable,
    SpecProblem,
    TrialCrashed,
    UsageProblem,
)

app = typer.Typer(
    name=PROGRAM,
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help takes half of the time of --help
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, function, short_help in (
    ("probe", probe.command, "Find the largest configuration that trains."),
    ("check", check.command, "Check that a config still fits, for CI."),
    ("explain", explain.command, "Measure where the memory goes and what would save some."),
    ("diagnose", diagnose.command, "Read a crash log: was it memory, and what to do."),
    ("report", report.command, "Show, list, compare and remove past probes."),
    ("doctor", doctor.command, "Show the hardware, TensorFlow and limits of this machine."),
    ("init", init.command, "Write a commented spec to start from."),
    ("schema", schema.command, "Print the JSON Schema of a spec, or validate specs."),
    ("guide", guide.command, "Read the manual."),
):
    app.command(name, cls=Command, short_help=short_help)(function)


def _print_version(context: typer.Context, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:  # a shell parses too when it completes what follows
        print(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    """Find the largest batch size, sequence length and precision that train without running out of memory.

    \b
    Examples:
      oomtune init model.yaml          write a spec to start from
      oomtune probe model.yaml         find what fits, write model.tuned.yaml
      oomtune check model.tuned.yaml   does it still fit?
      oomtune diagnose train.log       why did it crash?
      oomtune guide                    read the manual

    Run `oomtune COMMAND --help` for the options of a command.
    """


def main() -> NoReturn:
    """Run the command line and exit with the verdict's code."""
    # A polite kill is an interruption like Ctrl-C: the workers end and the ledger is kept.
    signal.signal(signal.SIGTERM, _interrupt)
    make_streams_last()
    try:
        code = _run()
    except TyperError as error:
        code = _fail(UsageProblem(error.format_message(), hint=f"see: oomtune{_registered_command()} --help"))
    except (typer.Abort, KeyboardInterrupt):
        code = _fail_as_interrupted()
    except OomtuneError as error:
        code = _fail(error)
    except Exception as error:  # noqa: BLE001 - the last resort: a bug of ours still gets a message and its exit code
        code = _fail(_bug(error))
    sys.exit(code)


def _run() -> int:
    """Run the command and return its exit code. Raise if the answer can't be written."""
    try:
        code = _set_up_completion(sys.argv[1:])
        if code is None:
            code = app(prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename is None:  # only getcwd fails without a file name
            raise EnvironmentProblem("the current folder was removed", hint="change to an existing folder") from None
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EBADF):
            raise
        discard(sys.stdout.fileno())
        raise OutputNotWritable(f"the answer can't be written to stdout: {error.strerror}") from None
    return code if isinstance(code, int) else 0


def _set_up_completion(words: list[str]) -> int | None:
    """Show or install shell completion, and return 0; return None for any other command line.

    Typer's own options take no name of a shell; these also work with one.
    """
    match words:
        case ["--show-completion" as flag, *shell] if len(shell) < 2:
            print(completion_script(_shell(flag, shell)))
            return 0
        case ["--install-completion" as flag, *shell] if len(shell) < 2:
            name = _shell(flag, shell)
            try:
                path = install_completion(name)
            except OSError as error:
                raise OutputNotWritable(f"{error.filename} can't be written: {error.strerror}") from None
            print(f"installed {name} completion in {path}; it works in new shells")
            return 0
    return None


def _shell(flag: str, named: list[str]) -> str:
    shell = named[0] if named else current_shell()
    if shell in SHELLS:
        return shell
    message = f"{flag} {shell}: unknown shell" if named else f"{flag}: can't complete in {shell or 'an unknown shell'}"
    raise UsageProblem(message, hint=f"name one: {', '.join(SHELLS)}")


def _bug(error: Exception) -> OomtuneError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    if "OOMTUNE_DEBUG" in os.environ:
        traceback.print_exception(error)
    hint = "set OOMTUNE_DEBUG=1 to see the traceback, and report it"
    message = f"a bug in oomtune: {type(error).__name__}: {error}"
    return OomtuneError(message, where=where, hint=hint + ("; the ledger is kept" if _command() == "probe" else ""))


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _own_words() -> list[str]:
    """Return the words before `--`; those after it are for a script."""
    words = sys.argv[1:]
    return words[: words.index("--")] if "--" in words else words


def _command() -> str:
    """Return the first word that is no flag, known or not."""
    return next((word for word in _own_words() if not word.startswith("-")), "")


def _registered_command() -> str:
    return f" {_command()}" if any(each.name == _command() for each in app.registered_commands) else ""


def _fail_as_interrupted() -> int:
    hint = "the ledger is kept; run the same command to continue" if _command() == "probe" else ""
    error = OomtuneError("interrupted", hint=hint)
    error.code = "interrupted"
    return _fail(error, INTERRUPTED)


def _fail(error: OomtuneError, exit_code: int | None = None) -> int:
    """Print the error on stderr, and as the JSON document with `--json`. Return the exit code."""
    code = error.exit_code if exit_code is None else exit_code
    message = str(error)
    if isinstance(error, SpecProblem) and len(error.problems) > 1:
        message += f"\n{len(error.problems)} problems in total"
    print_problem(message, hint=error.hint, traceback=error.traceback if isinstance(error, TrialCrashed) else "")
    if "--json" in _own_words():
        from oomtune.report.json_document import error_document

        with contextlib.suppress(OSError):  # stdout may be what failed
            print(json.dumps(error_document(_command(), code, error)), flush=True)
    return code
