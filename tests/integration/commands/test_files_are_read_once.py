"""Commands read each of their files once and pass on what they parsed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.support.cli import Cli
from tests.support.specs import small_spec

# Runs the command line and writes the name of every file that this process opens for reading.
COUNT_READS = """
import os, sys

log = open(sys.argv.pop(1), "a", buffering=1)

def note(event, args):
    if event == "open" and isinstance(args[0], str) and isinstance(args[1], str) and args[1][0] == "r":
        log.write(os.path.realpath(args[0]) + "\\n")

sys.addaudithook(note)
from oomtune.cli.app import main
main()
"""


def count_reads(cli: Cli, *words: str | Path) -> Counter[str]:
    """Run a command and return how often it opened each file for reading, by file name."""
    log = cli.folder / "reads.txt"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-c", COUNT_READS, str(log), *map(str, words)]
    subprocess.run(command, cwd=cli.folder, env=cli.environment, capture_output=True, timeout=300, check=True)
    return Counter(Path(line).name for line in log.read_text().splitlines())


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cli, Counter[str]]:
    """A folder with a probed spec, and what the probe read."""
    folder = tmp_path_factory.mktemp("reads")
    spec = small_spec(search__batch_size={"min": 1, "max": 64}, search__resolution=0.5)
    (folder / "model.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    cli = Cli(folder)
    return cli, count_reads(cli, "probe", "model.yaml", "-q", "--report", "out.html", "--summary", "out.md")


def test_a_probe_with_reports_reads_its_spec_and_its_ledger_once(probed: tuple[Cli, Counter[str]]) -> None:
    cli, reads = probed
    (ledger,) = cli.ledgers()
    assert (reads["model.yaml"], reads[ledger.name]) == (1, 1)


@pytest.mark.parametrize(
    "words", [("check", "model.tuned.yaml", "-q", "--update"), ("explain", "model.tuned.yaml", "-q")]
)
def test_a_tuned_config_and_its_spec_are_read_once(words: tuple[str, ...], probed: tuple[Cli, Counter[str]]) -> None:
    cli, _ = probed
    reads = count_reads(cli, *words)
    assert reads["model.tuned.yaml"] == 1
    assert reads["model.yaml"] <= 1
