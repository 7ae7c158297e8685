"""`oomtune report LEDGER`: draw a finished probe again; list, compare and clean up what probes have kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oomtune.cli import options
from oomtune.errors import UsageProblem

if TYPE_CHECKING:
    from oomtune.domain import ProbeResult

_OLD = "30d"

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LEDGER", show_default=False,
        help="A ledger, a spec, tuned config or script that was probed, or a spec's name; with --list and --clean, "
        "the folder or spec whose probes are meant.",
    ),
]  # fmt: skip
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "-o", "--output", metavar="FILE", show_default=False,
        help="Write this file: .html, .md, .xml (JUnit), .csv or .json. Repeatable.",
    ),
]  # fmt: skip
List = Annotated[bool, typer.Option("--list", help="List the probes that were kept.")]
Compare = Annotated[bool, typer.Option("--compare", help="Say what changed from one LEDGER to another.")]
Clean = Annotated[bool, typer.Option("--clean", help="Remove old ledgers, and what was kept beside them.")]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="TIME", show_default=False, help=f"What is old, for --clean: {_OLD} if unsaid."
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only the answer: no trials; of a list, only the paths.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also why each trial ended as it did.")]


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
    """Draw a probe again, whether it finished, failed or was interrupted: HTML, Markdown, JUnit, CSV, JSON.

    Without -o the answer is printed. Ledgers lie in .oomtune/ beside the spec where that folder exists, else in the
    user's state folder.

    \b
    Examples:
      oomtune report model.yaml                  print it again
      oomtune report model.yaml -o out.html      a page to look at
      oomtune report --list configs/             what was kept of specs there
      oomtune report --compare A.jsonl B.jsonl   what changed between two
      oomtune report --clean --older-than 7d     remove what is older
      oomtune report --clean configs/            the same, of specs there alone

    Exit codes: 0 shown, 2 there is no such probe, 5 a file can't be written.
    """
    named = words or []
    _refuse(named, listed=listed, compare=compare, clean=clean)
    if (listed or compare or clean) and (output or tensorboard is not None):
        raise UsageProblem("-o and --tensorboard draw one probe", hint="leave them out, or give one LEDGER alone")
    if older_than is not None and not clean:
        raise UsageProblem("--older-than says what --clean removes", hint="add --clean, or leave it out")
    if listed:
        _list(named, as_json=as_json, quiet=quiet, verbose=verbose, no_color=no_color)
    elif clean:
        _clean(named, older_than or _OLD, as_json=as_json, quiet=quiet)
    elif compare:
        _compare(named[0], named[1], as_json=as_json, no_color=no_color)
    else:
        finished = _drawn(named[0], output or [], tensorboard, force=force, as_json=as_json)
        if not (as_json or output or tensorboard):
            _print(finished, quiet=quiet, verbose=verbose, no_color=no_color)
    return 0


def _refuse(named: list[str], *, listed: bool, compare: bool, clean: bool) -> None:
    """Raise for words that do not belong together."""
    if listed + compare + clean > 1:
        raise UsageProblem("--list, --compare and --clean do different things", hint="keep one of them")
    expected = (2,) if compare else (0, 1) if listed or clean else (1,)
    if len(named) not in expected:
        wanted = "two LEDGERs" if compare else "at most one folder or spec" if listed or clean else "one LEDGER"
        raise UsageProblem(f"expected {wanted}, got {len(named)}", hint="see which there are: oomtune report --list")


def _drawn(word: str, files: list[Path], tensorboard: Path | None, *, force: bool, as_json: bool) -> ProbeResult:
    from oomtune.commands.report import find_probe, probe_files
    from oomtune.report.json_document import report_document

    outputs = probe_files(files, tensorboard)
    outputs.check(force=force)
    finished = find_probe(word, Path.cwd())
    outputs.write(finished)
    if as_json:
        print(json.dumps(report_document(finished.result)))
    return finished.result


def _print(result: ProbeResult, *, quiet: bool, verbose: bool, no_color: bool) -> None:
    from rich.text import Text

    from oomtune.report.answer import verdict_words
    from oomtune.report.terminal import print_answer, trial_table

    console = options.console_for("stdout", no_color=no_color)
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


def _list(named: list[str], *, as_json: bool, quiet: bool, verbose: bool, no_color: bool) -> None:
    from oomtune.commands.report import list_probes

    listing = list_probes(named[0] if named else None, Path.cwd())
    if as_json:
        print(_document("listed", ledgers=[dataclasses.asdict(probe) for probe in listing.probes]))
        return
    from rich.text import Text

    from oomtune.units import format_bytes, format_count

    console = options.console_for("stdout", no_color=no_color)
    if not listing.probes and not quiet:
        of = "" if listing.subject is None else f" of {listing.subject}"
        console.print(Text(f"no probes{of} are kept in {' or '.join(map(str, listing.folders))}"), soft_wrap=True)
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
        console.print(Text(path, style="dim"), soft_wrap=True)  # whole, to be copied


def _clean(named: list[str], older_than: str, *, as_json: bool, quiet: bool) -> None:
    from oomtune.commands.report import clean_probes
    from oomtune.units import format_bytes, format_count

    cleaned = clean_probes(named[0] if named else None, Path.cwd(), older_than)
    if as_json:
        removed = [str(path) for path in cleaned.removed]
        print(_document("cleaned", removed=removed, freed_bytes=cleaned.freed_bytes))
        return
    for path in cleaned.removed:
        print(path)
    if not quiet:
        freed = format_bytes(cleaned.freed_bytes)
        files = format_count(len(cleaned.removed), "file")
        print(f"removed {files} older than {older_than}, {freed}")


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
        print(_document("compared", compared=paths, changes=changes))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = options.console_for("stdout", no_color=no_color)
    if not comparison.differences:
        console.print("nothing changed")
        return
    table = Table(box=box.SIMPLE_HEAD, header_style="dim")
    for name in ("", "what", *headings(before, after), "by"):
        table.add_column(Text(name), overflow="fold")
    section = ""
    for change in comparison.differences:
        heading = change.section if change.section != section else ""
        table.add_row(*map(Text, (heading, change.what, *change.words, change.change)))
        section = change.section
    console.print(table)


def _document(verdict: str, **entries: Any) -> str:
    from oomtune.report.json_document import json_document

    return json.dumps(json_document("report", 0, verdict, entries))
