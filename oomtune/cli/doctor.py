"""`oomtune doctor`: what hardware, TensorFlow and limits this machine has, and what would stop a probe."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from oomtune.cli import options
from oomtune.cli.streams import facts_table, print_document, stderr_console, stdout_console

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", show_default=False,
        help="Assume this entry in the spec's device section. Repeatable.",
    ),
]  # fmt: skip
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also show unset variables and the operating system.")]


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

    Exit codes: 0 a probe can run here, 2 bad usage, 5 something would stop a probe.
    """
    from oomtune.commands.doctor import device_request, examine_machine

    memory_limit, like = options.choose_limit(context, memory_limit, like)
    request = device_request(device, memory_limit, like, settings or ())
    progress = stderr_console(no_color=no_color)
    with contextlib.nullcontext() if quiet else progress.status("asking TensorFlow for devices"):
        checkup = examine_machine(request, verbose=verbose)
    if as_json:
        facts = [{"name": name, "value": value} for name, value in checkup.facts]
        verdict = "ready" if checkup.can_probe else "not_ready"
        print_document("doctor", verdict, exit_code=checkup.exit_code, facts=facts, summary=checkup.summary)
    else:
        from rich.text import Text

        console = stdout_console(no_color=no_color)
        console.print(facts_table(checkup.facts))
        console.print()
        console.print(Text(checkup.summary))
    return checkup.exit_code
