"""`oomtune report LEDGER`: show a past probe again; list, compare and remove past probes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oomtune.cli import options
from oomtune.cli.streams import print_document, stdout_console
from oomtune.errors import UsageProblem

if TYPE_CHECKING:
    from oomtune.domain import ProbeResult

_DEFAULT_AGE = "30d"

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LEDGER", show_default=False,
        help="A ledger, a probed spec, tuned config or script, or a spec's name. --list and --clean also take a "
        "folder, and then show or remove only its probes.",
    ),
]  # fmt: skip
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "-o", "--output", metavar="FILE", show_default=False,
        help="Write this file: .html, .md, .xml (JUnit), .csv or .json. Repeatable.",
    ),
]  # fmt: skip
List = Annotated[bool, typer.Option("--list", help="List past probes.")]
Compare = Annotated[bool, typer.Option("--compare", help="Show what changed from one LEDGER to another.")]
Clean = Annotated[bool, typer.Option("--clean", help="Remove old ledgers and what belongs to them.")]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="TIME", show_default=False, help=f"What --clean removes.  [default: {_DEFAULT_AGE}]"
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Leave out the trials; list only paths.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also show why trials failed; list the specs.")]


def command(
    words: Words = None,
    output: Files = None,
    tensorboard: options.TensorBoard = None,
    listed: List = False,
    compare: Compare = False,
    clean: Clean = False,
    older_than: OlderThan = None,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Show a past probe again, whether it finished, failed or was interrupted.

    Prints the answer, or writes files with -o. Ledgers are in .oomtune/ beside the spec if that folder exists, else in
    the user's state folder.

    \b
    Examples:
      oomtune report model.yaml                  print the last probe
      oomtune report model.yaml -o out.html      write a page
      oomtune report --list configs/             list probes of specs there
      oomtune report --compare A.jsonl B.jsonl   show what changed
      oomtune report --clean --older-than 7d     remove older ledgers
      oomtune report --clean configs/            only those of specs there

    Exit codes: 0 shown, 2 bad usage or no such probe, 5 a file can't be written.
    """
    names = words or []
    _check_usage(names, listed=listed, compare=compare, clean=clean)
    if (listed or compare or clean) and (output or tensorboard is not None):
        raise UsageProblem("-o and --tensorboard need one LEDGER", hint="leave them out, or give one LEDGER alone")
    if older_than is not None and not clean:
        raise UsageProblem("--older-than needs --clean", hint="add --clean, or leave it out")
    if listed:
        _list_probes(names, as_json=as_json, quiet=quiet, verbose=verbose, no_color=no_color)
    elif clean:
        _clean(names, older_than or _DEFAULT_AGE, as_json=as_json, quiet=quiet)
    elif compare:
        _compare(names[0], names[1], as_json=as_json, no_color=no_color)
    else:
        result = _write_files(names[0], output or [], tensorboard, force=force)
        if as_json:
            from oomtune.report.json_document import report_document

            print(json.dumps(report_document(result)))
        elif not (output or tensorboard):
            _print_probe(result, quiet=quiet, verbose=verbose, no_color=no_color)
    return 0


def _check_usage(names: list[str], *, listed: bool, compare: bool, clean: bool) -> None:
    if listed + compare + clean > 1:
        raise UsageProblem("--list, --compare and --clean exclude each other", hint="keep one of them")
    allowed = (2,) if compare else (0, 1) if listed or clean else (1,)
    if len(names) not in allowed:
        expected = "two LEDGERs" if compare else "at most one folder or spec" if listed or clean else "one LEDGER"
        raise UsageProblem(f"expected {expected}, got {len(names)}", hint="list past probes: oomtune report --list")


def _write_files(name: str, paths: list[Path], tensorboard: Path | None, *, force: bool) -> ProbeResult:
    from oomtune.commands.report import find_probe, probe_files

    files = probe_files(paths, tensorboard)
    files.check(force=force)
    finished = find_probe(name, Path.cwd())
    files.write(finished)
    return finished.result


def _print_probe(result: ProbeResult, *, quiet: bool, verbose: bool, no_color: bool) -> None:
    from rich.text import Text

    from oomtune.report.answer import verdict_words
    from oomtune.report.terminal import print_answer, trial_table

    console = stdout_console(no_color=no_color)
    verdict = verdict_words(result)
    console.print(Text(f"{result.spec.name}: {verdict.sign} {verdict.word}, {result.probed_at}", style="bold"))
    console.print(Text(verdict.sentence))
    if result.records and not quiet:
        console.print(trial_table(list(result.records), result.budget))
    for record in result.records if verbose else ():
        if record.outcome.error is not None:
            console.print(Text(f"trial {record.number}: {record.outcome.error.message}"), soft_wrap=True)
    if result.best is not None:
        print_answer(console, result)
    if result.problem is not None and result.problem.hint:
        console.print(Text(result.problem.hint))


def _list_probes(names: list[str], *, as_json: bool, quiet: bool, verbose: bool, no_color: bool) -> None:
    from oomtune.commands.report import list_probes

    listing = list_probes(names[0] if names else None, Path.cwd())
    if as_json:
        print_document("report", "listed", ledgers=[dataclasses.asdict(probe) for probe in listing.probes])
        return
    from rich.text import Text

    from oomtune.units import format_bytes, format_count

    console = stdout_console(no_color=no_color)
    if not listing.probes and not quiet:
        of = "" if listing.subject is None else f" of {listing.subject}"
        console.print(Text(f"no probes{of} in {' or '.join(map(str, listing.folders))}"), soft_wrap=True)
    for probe in listing.probes:
        facts = (
            probe.verdict,
            probe.best,
            format_count(probe.trials, "trial"),
            probe.at,
            format_bytes(probe.size_bytes),
            f"of {probe.spec_path}" if verbose and probe.spec_path else None,
        )
        line = Text(f"{probe.name}: ", style="bold").append(" · ".join(filter(None, facts)), style="not bold")
        if not quiet:
            console.print(line, soft_wrap=True)
        path = probe.path if quiet else f"  {probe.path}"
        console.print(Text(path, style="dim"), soft_wrap=True)  # unbroken, to copy


def _clean(names: list[str], older_than: str, *, as_json: bool, quiet: bool) -> None:
    from oomtune.commands.report import clean_probes
    from oomtune.units import format_bytes, format_count

    cleaned = clean_probes(names[0] if names else None, Path.cwd(), older_than)
    if as_json:
        removed = [str(path) for path in cleaned.removed]
        print_document("report", "cleaned", removed=removed, freed_bytes=cleaned.freed_bytes)
        return
    for path in cleaned.removed:
        print(path)
    if not quiet:
        files = format_count(len(cleaned.removed), "file")
        print(f"removed {files} older than {older_than}, {format_bytes(cleaned.freed_bytes)}")


def _compare(first: str, second: str, *, as_json: bool, no_color: bool) -> None:
    from oomtune.commands.comparison import headings
    from oomtune.commands.report import compare_probes

    comparison = compare_probes(first, second, Path.cwd())
    before, after = comparison.before.result, comparison.after.result
    if as_json:
        changes = [
            {"section": change.section, "what": change.what, "before": change.before, "after": change.after}
            for change in comparison.differences
        ]
        paths = {"before": before.ledger_path, "after": after.ledger_path}
        print_document("report", "compared", compared=paths, changes=changes)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = stdout_console(no_color=no_color)
    if not comparison.differences:
        console.print("nothing changed")
        return
    table = Table(box=box.SIMPLE_HEAD, header_style="dim")
    for heading in ("", "what", *headings(before, after), "by"):
        table.add_column(Text(heading), overflow="fold")
    section = ""
    for change in comparison.differences:
        new_section = change.section if change.section != section else ""
        table.add_row(*map(Text, (new_section, change.what, *change.words, change.change)))
        section = change.section
    console.print(table)
