"""`oomtune doctor`: what hardware, TensorFlow and limits are here, and what would stop a probe."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated

import typer

from oomtune.cli import options

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", show_default=False,
        help="As if the spec's section device had this entry. Repeatable.",
    ),
]  # fmt: skip
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also what is not set, and the system below.")]


def command(
    context: typer.Context,
    device: options.Device = None,
    memory_limit: options.MemoryLimit = None,
    like: options.Like = None,
    settings: Settings = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    """Show the hardware, TensorFlow and limits of this machine, and what a probe would do here.

    \b
    Examples:
      oomtune doctor
      oomtune doctor --like T4
      oomtune doctor --memory-limit 8GiB --json

    Exit codes: 0 a probe can run here, 5 something would stop it.
    """
    from oomtune.commands.doctor import device_request, examine_machine

    memory_limit, like = options.one_limit(context, memory_limit, like)
    request = device_request(device, memory_limit, like, settings or ())
    console = options.console_for("stderr", no_color=no_color)
    with contextlib.nullcontext() if quiet else console.status("asking TensorFlow what it sees"):
        checkup = examine_machine(request, verbose=verbose)
    if as_json:
        from oomtune.report.json_document import json_document

        facts = [{"name": name, "value": value} for name, value in checkup.facts]
        verdict = "ready" if checkup.can_probe else "not_ready"
        print(
            json.dumps(
                json_document("doctor", checkup.exit_code, verdict, {"facts": facts, "summary": checkup.summary})
            )
        )
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, padding=(0, 1))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in checkup.facts:
            table.add_row(name, Text(value))
        console = options.console_for("stdout", no_color=no_color)
        console.print(table)
        console.print()
        console.print(Text(checkup.summary))
    return checkup.exit_code
