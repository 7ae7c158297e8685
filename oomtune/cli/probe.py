"""`oomtune probe SPEC`: find the largest configuration that trains, and write the tuned config."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from oomtune.cli import options
from oomtune.errors import UsageProblem

if TYPE_CHECKING:
    from oomtune.domain import ProbeResult
    from oomtune.observer import Observer


def command(
    context: typer.Context,
    words: options.SpecOrArguments = None,
    script: options.Script = None,
    output: options.Output = None,
    device: options.Device = None,
    memory_limit: options.MemoryLimit = None,
    like: options.Like = None,
    objective: options.ObjectiveName = None,
    settings: options.Settings = None,
    frontier: options.Frontier = False,
    max_trials: options.MaxTrials = None,
    time_limit: options.TimeLimit = None,
    fresh: options.Fresh = False,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Find the largest configuration that trains without running out of memory, and write it down.

    A training script needs no spec: oomtune probe --script train.py -- --batch-size {batch_size}

    Exit codes: 0 found and confirmed, 2 bad spec, 3 nothing fits, 5 the environment, 6 the model or data is broken,
    7 stopped by a limit, 130 interrupted (the same command goes on).
    """
    from oomtune.api import ProbeOptions, run_probe

    source: Path | dict[str, Any] = _spec_path(words or []) if script is None else _script_spec(script, words or [])
    if script is not None and output is None:
        output = script.with_name(f"{script.stem}.tuned.yaml")
    memory_limit, like = options.one_limit(context, memory_limit, like)
    wanted = ProbeOptions(
        device=device,
        memory_limit=memory_limit,
        like=like,
        objective=objective,
        settings=tuple(settings or ()),
        output=output,
        force=force,
        frontier=frontier,
        fresh=fresh,
        max_trials=max_trials,
        time_limit=time_limit,
    )
    with _screen(quiet=quiet, verbose=verbose, no_color=no_color) as observer:
        result = run_probe(source, wanted, observer)
    return _tell(result, as_json=as_json, no_color=no_color)


def _spec_path(words: list[str]) -> Path:
    if len(words) != 1:
        raise UsageProblem(
            "expected one SPEC" if words else "missing argument 'SPEC'",
            hint="or a script: oomtune probe --script train.py -- --batch-size {batch_size}",
        )
    return Path(words[0])


def _script_spec(script: Path, arguments: list[str]) -> dict[str, Any]:
    """The whole spec of a script that was given on the command line."""
    return {"name": script.stem, "model": {"script": {"path": str(script), "args": arguments}}}


@contextlib.contextmanager
def _screen(*, quiet: bool, verbose: bool, no_color: bool) -> Iterator[Observer]:
    if quiet:
        from oomtune.observer import SilentObserver

        yield SilentObserver()
        return
    from oomtune.cli.screen import LineScreen, LiveScreen

    console = options.console_for("stderr", no_color=no_color)
    if console.is_terminal and not verbose:
        with LiveScreen(console) as screen:
            yield screen
    else:
        yield LineScreen(console, details=verbose)


def _tell(result: ProbeResult, *, as_json: bool, no_color: bool) -> int:
    """The answer on stdout, what went wrong on stderr, and the exit code."""
    from oomtune.domain import Verdict

    exit_code = {
        Verdict.TUNED: 0,
        Verdict.NOTHING_FITS: 3,
        Verdict.FAILED: 6,
        Verdict.STOPPED: 7,
        Verdict.INTERRUPTED: 130,
    }[result.verdict]
    if result.problem is not None:
        print(result.problem.traceback, end="", file=sys.stderr)
        print(f"oomtune: {result.problem.message}", file=sys.stderr)
        for line in result.problem.hint.splitlines():
            print(f"  {line}", file=sys.stderr)
    if as_json:
        from oomtune.report.document import probe_document

        print(json.dumps(probe_document(result, exit_code)))
    elif result.best is not None and exit_code in (0, 7):
        from oomtune.report.terminal import print_answer

        print_answer(options.console_for("stdout", no_color=no_color), result)
    return exit_code
