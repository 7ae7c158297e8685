"""Every config runs as it is, to a confirmed answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, Cli

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", [path for path in CONFIGS if ".tuned" not in path.name], ids=lambda path: path.stem)
def test_each_config_probes_to_a_confirmed_answer(cli: Cli, path: Path) -> None:
    shutil.copytree(ROOT / "configs", cli.folder / "configs", ignore=shutil.ignore_patterns("*.tuned.yaml"))
    # As it is, but for a coarser edge and a shorter proof: the suite's time is short.
    quicker = ("--set", "search.resolution=0.1", "--set", "trial.confirm_steps=8")
    ran = cli("probe", Path("configs") / path.name, "--json", *quicker, timeout=600)
    assert ran.code == 0, ran.err
    assert ran.document["confirmed"] is True
    assert ran.document["memory"]["peak_bytes"] <= ran.document["memory"]["budget_bytes"]
    assert (cli.folder / "configs" / f"{path.stem}.tuned.yaml").is_file()
