"""`oomtune doctor`: what hardware, TensorFlow and limits are here, and what would stop a probe."""

from __future__ import annotations

import contextlib
import json

import typer

from oomtune.cli import options


def command(
    context: typer.Context,
    device: options.Device = None,
    memory_limit: options.MemoryLimit = None,
    like: options.Like = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> int:
    """Show the hardware, TensorFlow and limits of this machine, and what a probe would do here.

    Exit codes: 0 a probe can run here, 5 something would stop it.
    """
    from oomtune.cli.checkup import checkup, request_for

    memory_limit, like = options.one_limit(context, memory_limit, like)
    request = request_for(device, memory_limit, like)
    console = options.console_for("stderr", no_color=no_color)
    with contextlib.nullcontext() if quiet else console.status("asking TensorFlow what it sees"):
        found = checkup(request)
    if as_json:
        print(json.dumps(found.document()))
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, padding=(0, 1))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in found.rows:
            table.add_row(name, Text(value))
        console = options.console_for("stdout", no_color=no_color)
        console.print(table)
        console.print()
        console.print(Text(found.sentence))
    return 0 if found.can_probe else 5
