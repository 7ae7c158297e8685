"""`oomtune doctor`: what hardware, TensorFlow and limits are here, and what would stop a probe."""

from __future__ import annotations

import json

from oomtune.cli import options


def command(as_json: options.Json = False, no_color: options.NoColor = False) -> int:
    """Show the hardware, TensorFlow and limits of this machine, and what a probe would do here."""
    from oomtune.cli.checkup import checkup

    with options.console_for("stderr", no_color=no_color).status("asking TensorFlow what it sees"):
        found = checkup()
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
