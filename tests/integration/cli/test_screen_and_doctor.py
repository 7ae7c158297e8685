"""The command line as people see it: the live view on a real terminal, the doctor, bugs and bad usage."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.terminal import on_a_terminal


def test_a_terminal_shows_a_live_view_and_then_the_answer(cli: Cli, spec_file: Callable[..., Path]) -> None:
    code, drawn = on_a_terminal(cli, "probe", spec_file(name="[bold]<b>name"))
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert "\x1b[" in drawn
    for words in ("elapsed", "left", "best so far", "edge is between", "calibrate", "█", "confirmed"):
        assert words in plain, words
    assert "[bold]<b>name" in plain  # a name is text, whatever is in it


def test_no_color_turns_colours_off(cli: Cli, spec_file: Callable[..., Path]) -> None:
    _, drawn = on_a_terminal(cli, "probe", spec_file(), "--no-color", "--max-trials", "1")
    assert not re.search(r"\x1b\[3[1-6]m", drawn)


def test_the_doctor_shows_the_machine_and_what_a_probe_would_do(cli: Cli) -> None:
    ran = cli("doctor", env={"TF_FORCE_GPU_ALLOW_GROWTH": "true", "COLUMNS": "200"})
    assert ran.code == 0
    for words in ("TensorFlow", "Keras", "CUDA", "GPU", "free of", "TF_FORCE_GPU_ALLOW_GROWTH=true", "can be written"):
        assert words in ran.out, words
    assert "A probe here would use" in ran.out


def test_the_doctor_has_a_json_document(cli: Cli) -> None:
    document = cli("doctor", "--json").document
    assert (document["command"], document["verdict"], document["error"]) == ("doctor", "ready", None)
    assert {"TensorFlow", "memory", "CPU"} <= {fact["name"] for fact in document["facts"]}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--like", "t4"], 0, "in place of a Tesla T4 with a hard limit of 13.5 GiB"),
        (["--memory-limit", "900GiB"], 5, "A probe can't run here: the limit of 900 GiB"),
        (["--device", "gpu"], 5, "no GPU is visible"),
        (["--device", "tpu"], 2, "expected auto, gpu or cpu"),
        (["--memory-limit", "lots"], 2, "expected a size"),
    ],
)
def test_the_doctor_judges_the_device_options(cli: Cli, words: list[str], code: int, message: str) -> None:
    ran = cli("doctor", *words, "-q", env={"COLUMNS": "300"})
    assert ran.code == code
    assert message in " ".join((ran.out + ran.err).split())


def test_a_reader_that_leaves_and_a_full_disk_are_not_bugs(cli: Cli) -> None:
    command = f"{sys.executable} -m oomtune schema"
    left = subprocess.run(["sh", "-c", f"{command} | true"], capture_output=True, text=True, check=False)
    assert left.stderr == ""
    full = subprocess.run(["sh", "-c", f"{command} > /dev/full"], capture_output=True, text=True, check=False)
    assert full.returncode == 5
    assert "can't be written to stdout: No space left" in full.stderr
    assert "Traceback" not in full.stderr


def test_schema_prints_json_on_stdout(cli: Cli) -> None:
    ran = cli("schema")
    assert ran.code == 0
    assert ran.document["title"] == "oomtune spec"


@pytest.mark.parametrize(
    "words", [["--help"], ["probe", "--help"], ["doctor", "-h"], ["schema", "--help"], ["--version"]]
)
def test_help_and_version_go_to_stdout(cli: Cli, words: list[str]) -> None:
    ran = cli(*words)
    assert ran.code == 0
    assert ran.out
    assert ran.err == ""


def test_a_bug_exits_1_and_hides_the_traceback(cli: Cli, spec_file: Callable[..., Path]) -> None:
    """The bug is a library that misbehaves in an unexpected way."""
    (cli.folder / "sitecustomize.py").write_text("import psutil\npsutil.virtual_memory = lambda: None\n")
    ran = cli("probe", spec_file(), "--json", env={"PYTHONPATH": str(cli.folder)})
    assert (ran.code, ran.document["exit_code"]) == (1, 1)
    assert "a bug in oomtune: AttributeError" in ran.document["error"]["message"]
    assert "Traceback" not in ran.err
    loud = cli("probe", spec_file(), env={"PYTHONPATH": str(cli.folder), "OOMTUNE_DEBUG": "1"})
    assert "Traceback" in loud.err


@pytest.mark.parametrize("words", [[], ["prob"], ["probe"], ["probe", "a.yaml", "b.yaml"]])
def test_bad_usage_exits_2(cli: Cli, words: list[str]) -> None:
    assert cli(*words).code == 2
