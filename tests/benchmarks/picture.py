"""Draw a real probe as the terminal shows it, for the README: `make pictures` runs this."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from oomtune.cli.screen import headline
from oomtune.commands.probe import ProbeOptions, run_probe
from oomtune.domain.observer import SilentObserver
from oomtune.report.terminal import print_answer, trial_table


def draw(spec: str, picture: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tuned = Path(folder) / "lstm.tuned.yaml"
        result = run_probe(spec, ProbeOptions(fresh=True, output=tuned), SilentObserver()).result
    console = Console(record=True, width=116, file=io.StringIO())
    console.print(f"[green]$[/green] oomtune probe {spec}")
    console.print(headline(result.spec, result.device, result.budget), highlight=False)
    console.print(trial_table(list(result.records), result.budget))
    print_answer(console, result)
    text = console.export_svg(title="oomtune")
    picture.write_text(text.replace(str(tuned), f"{spec.removesuffix('.yaml')}.tuned.yaml"))


if __name__ == "__main__":
    draw(sys.argv[1], Path(sys.argv[2]))
