"""`oomtune explain` from end to end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Cli, processes_with, wait_for


def test_explain_measures_remedies_and_its_answer_is_one_document(cli: Cli, spec_file: Callable[..., Path]) -> None:
    ran = cli("explain", spec_file(training__optimizer="adam", trial__steps=1), "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    assert (document["command"], document["verdict"]) == ("explain", "explained")
    total = sum(part["bytes"] for part in document["anatomy"]["parts"])
    assert total == pytest.approx(document["memory"]["peak_bytes"], rel=0.1)
    assert document["memory"]["peak_bytes"] == document["before"]["peak_bytes"]
    assert document["before"]["largest_batch_size"]["value"] > document["candidate"]["batch_size"]
    remedies = {remedy["name"]: remedy for remedy in document["remedies"]}
    assert remedies["sgd for adam"]["after"]["peak_bytes"] > 0
    assert remedies["sgd for adam"]["lines"] == ["training: {optimizer: sgd}"]
    for name in ("mixed precision (bfloat16)", "rematerialisation", "XLA on"):
        assert remedies[name]["after"] or remedies[name]["problem"], name
    assert remedies["gradient accumulation"]["after"]["peak_bytes"] > 0
    assert document["growth"]["bytes_per_sample"] == pytest.approx(9_000, rel=0.6), (
        "what contract/test_runners.py has for it"
    )
    assert "trial 1: how memory grows with the batch" in ran.err
    assert not list(cli.folder.glob("*.tuned.yaml"))


def test_failed_explanations_have_their_exit_codes(cli: Cli, spec_file: Callable[..., Path]) -> None:
    assert cli("explain", "missing.yaml").code == 2
    ran = cli("explain", spec_file(), "--memory-limit", "1MiB", "--batch-size", "64", "--json")
    assert (ran.code, ran.document["command"]) == (3, "explain")
    assert "batch 64, float32 does not fit" in ran.err


def test_an_interrupted_explanation_leaves_nothing_running(
    cli: Cli, spec_file: Callable[..., Path], marker: str
) -> None:
    process = cli.start("explain", spec_file(), "--json", env={"MARKER": marker})
    # The command, its worker, and the trial that the worker forked.
    wait_for(lambda: len(processes_with(marker)) >= 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == json.loads(out)["exit_code"] == 130
    assert "interrupted" in err
    wait_for(lambda: processes_with(marker) == [], seconds=20)
