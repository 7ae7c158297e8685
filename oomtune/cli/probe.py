"""`oomtune probe SPEC`: find the largest configuration that trains, and write the tuned config."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from oomtune.cli import options
from oomtune.errors import UsageProblem

if TYPE_CHECKING:
    from oomtune.commands.report import ProbeFiles
    from oomtune.domain import ProbeResult


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
    report: options.Report = None,
    summary: options.Summary = None,
    junit: options.Junit = None,
    csv: options.Csv = None,
    tensorboard: options.TensorBoard = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Find the largest configuration that trains without running out of memory, and write it down.

    \b
    Examples:
      oomtune probe model.yaml
      oomtune probe model.yaml --memory-limit 2GiB --report out.html
      oomtune probe model.yaml --like T4 --set search.resolution=0.05
      oomtune probe --script train.py -- --batch-size {batch_size}

    Exit codes: 0 found and confirmed, 2 bad spec, 3 nothing fits, 5 the environment, 6 the model or data is broken,
    7 stopped by a limit, 130 interrupted (the same command goes on).
    """
    from oomtune.commands.probe import ProbeOptions, run_probe, script_spec
    from oomtune.storage.tuned import tuned_beside

    probed = _spec_path(words or []) if script is None else script
    files = _files({".html": report, ".md": summary, ".xml": junit, ".csv": csv}, tensorboard)
    files.check(force=force, others={probed: "what is probed", output or tuned_beside(probed): "the tuned config"})
    memory_limit, like = options.one_limit(context, memory_limit, like)
    wanted = ProbeOptions(
        device=device,
        memory_limit=memory_limit,
        like=like,
        objective=objective,
        settings=tuple(settings or ()),
        output=output if output or not script else tuned_beside(script),
        force=force,
        frontier=frontier,
        fresh=fresh,
        max_trials=max_trials,
        time_limit=time_limit,
    )
    with options.screen(quiet=quiet, verbose=verbose, no_color=no_color) as observer:
        finished = run_probe(probed if script is None else script_spec(script, words or []), wanted, observer)
    files.write(finished)
    return _tell(finished.result, as_json=as_json, no_color=no_color)


def _files(paths: dict[str, Path | None], tensorboard: Path | None) -> ProbeFiles:
    from oomtune.commands.report import RENDERINGS, ProbeFiles

    files = [(path, RENDERINGS[suffix]) for suffix, path in paths.items() if path is not None]
    return ProbeFiles(files=files, tensorboard=tensorboard)


def _spec_path(words: list[str]) -> Path:
    if len(words) != 1:
        raise UsageProblem(
            "expected one SPEC" if words else "missing argument 'SPEC'",
            hint="or a script: oomtune probe --script train.py -- --batch-size {batch_size}",
        )
    return Path(words[0])


def _tell(result: ProbeResult, *, as_json: bool, no_color: bool) -> int:
    """The answer on stdout, what went wrong on stderr, and the exit code."""
    exit_code = result.verdict.exit_code
    if result.problem is not None:
        print(result.problem.traceback, end="", file=sys.stderr)
        where = f"{result.problem.where}: " if result.problem.where else ""
        print(f"oomtune: {where}{result.problem.message}", file=sys.stderr)
        for line in result.problem.hint.splitlines():
            print(f"  {line}", file=sys.stderr)
    if as_json:
        from oomtune.report.json_document import probe_document

        print(json.dumps(probe_document(result)))
    elif result.best is not None and exit_code in (0, 7):
        from oomtune.report.terminal import print_answer

        print_answer(options.console_for("stdout", no_color=no_color), result)
    return exit_code
