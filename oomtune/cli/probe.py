"""`oomtune probe SPEC`: find the largest configuration that trains, and write the tuned config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oomtune.cli import options
from oomtune.cli.streams import print_problem, stdout_console
from oomtune.errors import UsageProblem

if TYPE_CHECKING:
    from oomtune.commands.report import ProbeFiles
    from oomtune.domain import ProbeResult

SpecOrArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SPEC", help="The spec, a YAML file. With --script, the script's arguments.", show_default=False
    ),
]
Script = Annotated[
    Path | None,
    typer.Option(
        "--script", metavar="FILE.py", show_default=False,
        help="Probe this training script. Its arguments follow --, with {batch_size} among them.",
    ),
]  # fmt: skip
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="Where to write the tuned config.  [default: SPEC.tuned.yaml]",
        show_default=False,
    ),
]  # fmt: skip
ObjectiveName = Annotated[
    str | None,
    typer.Option(
        "--objective", envvar="OOMTUNE_OBJECTIVE", metavar="NAME",
        help="What to maximise: tokens, batch_size, sequence_length or throughput.", show_default=False,
        autocompletion=options.complete_objectives,
    ),
]  # fmt: skip
Frontier = Annotated[bool, typer.Option("--frontier", help="Search every length and precision, not only the winner's.")]
MaxTrials = Annotated[
    int | None, typer.Option("--max-trials", metavar="N", help="Stop after this many trials.", show_default=False)
]
TimeLimit = Annotated[
    str | None, typer.Option("--time-limit", metavar="TIME", help="Stop after this time: 90s, 10m.", show_default=False)
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming.")]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.html", help="Write an HTML report.", show_default=False)
]
Summary = Annotated[
    Path | None, typer.Option("--summary", metavar="FILE.md", help="Write a Markdown summary.", show_default=False)
]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE.xml", help="Write JUnit XML.", show_default=False)]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE.csv", help="Write every size that ran.", show_default=False)
]


def command(
    context: typer.Context,
    words: SpecOrArguments = None,
    script: Script = None,
    output: Output = None,
    device: options.Device = None,
    memory_limit: options.MemoryLimit = None,
    like: options.Like = None,
    objective: ObjectiveName = None,
    settings: options.Settings = None,
    frontier: Frontier = False,
    max_trials: MaxTrials = None,
    time_limit: TimeLimit = None,
    fresh: Fresh = False,
    force: options.Force = False,
    report: Report = None,
    summary: Summary = None,
    junit: Junit = None,
    csv: Csv = None,
    tensorboard: options.TensorBoard = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Find the largest configuration that trains without running out of memory.

    Runs real training steps, confirms the best configuration in a fresh process, and writes it to a tuned config.
    An interrupted probe resumes with the same command.

    \b
    Examples:
      oomtune probe model.yaml
      oomtune probe model.yaml --memory-limit 2GiB --report out.html
      oomtune probe model.yaml --like T4 --set search.resolution=0.05
      oomtune probe --script train.py -- --batch-size {batch_size}

    Exit codes: 0 found and confirmed, 2 bad usage or spec, 3 nothing fits, 5 the environment, 6 the model or data is
    broken, 7 stopped by --max-trials or --time-limit, 130 interrupted.
    """
    from oomtune.cli.screen import probe_screen
    from oomtune.commands.probe import ProbeOptions, run_probe, script_spec
    from oomtune.storage.tuned import tuned_beside

    probed = _spec_path(words or []) if script is None else script
    files = _files({".html": report, ".md": summary, ".xml": junit, ".csv": csv}, tensorboard)
    files.check(force=force, others={probed: "what is probed", output or tuned_beside(probed): "the tuned config"})
    memory_limit, like = options.choose_limit(context, memory_limit, like)
    probe_options = ProbeOptions(
        device=device, memory_limit=memory_limit, like=like, objective=objective, settings=tuple(settings or ()),
        output=output if output or not script else tuned_beside(script), force=force,
        frontier=frontier, fresh=fresh, max_trials=max_trials, time_limit=time_limit,
    )  # fmt: skip
    source = probed if script is None else script_spec(script, words or [])
    with probe_screen(quiet=quiet, verbose=verbose, no_color=no_color) as observer:
        finished = run_probe(source, probe_options, observer)
    files.write(finished)
    _print_result(finished.result, as_json=as_json, no_color=no_color)
    return finished.result.verdict.exit_code


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


def _print_result(result: ProbeResult, *, as_json: bool, no_color: bool) -> None:
    """Print the answer on stdout, and what went wrong on stderr."""
    problem = result.problem
    if problem is not None:
        message = f"{problem.where}: {problem.message}" if problem.where else problem.message
        print_problem(message, hint=problem.hint, traceback=problem.traceback)
    if as_json:
        from oomtune.report.json_document import probe_document

        print(json.dumps(probe_document(result)))
    elif result.best is not None and result.verdict.exit_code in (0, 7):
        from oomtune.report.terminal import print_answer

        print_answer(stdout_console(no_color=no_color), result)
