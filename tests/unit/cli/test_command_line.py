"""What holds for every command: its help, its streams, its exit code and its one JSON document, whatever happens."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oomtune.domain import CheckResult, Verdict
from oomtune.errors import INTERRUPTED, UsageProblem
from oomtune.report.json_document import check_document, error_document, probe_document, report_document
from tests.support.checks import RESULT as CHECKED
from tests.support.cli import Cli
from tests.support.finished import MIB, FailingDevice, finished

COMMANDS = ("probe", "check", "explain", "diagnose", "report", "doctor", "init", "schema", "guide")
SHARED = ("--json", "--quiet", "--verbose", "--no-color")
OF_A_SPEC = ("--device", "--memory-limit", "--like", "--set")
HEAD = {"format", "oomtune", "command", "exit_code", "verdict", "error"}
NOT_MEMORY = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: wrong labels\n'


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_and_shows_an_example(command: str, cli: Cli) -> None:
    ran = cli(*filter(None, (command, "--help")), env={"COLUMNS": "80"})
    assert (ran.code, ran.err) == (0, "")
    assert [line for line in ran.out.splitlines() if len(line) > 80] == []
    assert ran.out.startswith(f"Usage: oomtune {command}".rstrip())
    assert re.search(rf"^ .*\boomtune {command or 'probe'}\b", ran.out, flags=re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_options_that_mean_the_same_everywhere_are_everywhere(command: str, cli: Cli) -> None:
    told = cli(command, "--help").out
    wanted = SHARED + (OF_A_SPEC if command in ("probe", "check", "explain", "doctor") else ())
    assert [option for option in wanted if not re.search(rf"{option}\b", told)] == []


def test_help_loads_nothing_that_takes_time(cli: Cli) -> None:
    code = (
        "import sys; sys.argv = ['oomtune', '--help']\n"
        "from oomtune.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in sys.modules if m in sys.stdin.read().split()], file=sys.stderr)\n"
    )
    heavy = "tensorflow keras numpy plotly jinja2 tensorboard pydantic rich yaml"
    ran = subprocess.run([sys.executable, "-c", code], input=heavy, capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


def test_the_version_is_told(cli: Cli) -> None:
    assert re.fullmatch(r"oomtune \d+\.\d+\.\d+\S*\n", cli("--version").out)


def test_a_shell_completes_commands_and_options(cli: Cli) -> None:
    def completed(words: str) -> list[str]:
        asked = {"_OOMTUNE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return cli(env=asked).out.split()

    assert completed("oomtune re") == ["report"]
    assert completed("oomtune report --comp") == ["--compare"]
    assert set(completed("oomtune ")) == set(COMMANDS)
    assert "_OOMTUNE_COMPLETE=complete_bash" in cli("--show-completion", "bash").out


def without_a_reader(cli: Cli, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command whose stdout nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-m", "oomtune", *map(str, words)],
            cwd=cli.folder, env=cli.environment, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["diagnose", "log"], 3), (["diagnose", "log", "--json"], 3), (["schema"], 0), (["probe", "--help"], 0)],
)
def test_a_reader_that_leaves_does_not_change_the_verdict(words: list[str], code: int, cli: Cli) -> None:
    (cli.folder / "log").write_text(NOT_MEMORY)
    ran = without_a_reader(cli, *words)
    assert (ran.returncode, ran.stderr) == (code, "")


@pytest.mark.parametrize("stderr", ["closed", "on a full disk", "without a reader"])
def test_a_stderr_that_can_not_be_written_does_not_change_the_verdict(stderr: str, cli: Cli) -> None:
    script = {
        "closed": "exec 2>&-",
        "on a full disk": "exec 2>/dev/full",
        "without a reader": "exec 2> >(exec true); wait $!",
    }[stderr]
    ran = subprocess.run(
        ["bash", "-c", f'{script}; exec "$@"', "-", sys.executable, "-m", "oomtune", "probe", "none.yaml", "--json"],
        cwd=cli.folder, env=cli.environment, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["error"]["code"] == "spec"


def test_what_stdout_can_not_show_is_escaped_and_a_closed_one_is_like_one_without_a_reader(cli: Cli) -> None:
    name = os.fsdecode(b"caf\xe9.yaml")
    ran = cli("init", name, env={"PYTHONIOENCODING": "ascii:strict"})
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(r"wrote caf\udce9.yaml")
    closed = ["bash", "-c", 'exec "$@" >&-', "-", sys.executable, "-m", "oomtune", "schema"]
    ended = subprocess.run(closed, cwd=cli.folder, env=cli.environment, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_interrupted_command_says_so_and_promises_no_ledger_that_it_does_not_keep(cli: Cli) -> None:
    log = cli.folder / "log"
    os.mkfifo(log)
    process = cli.start("diagnose", log, "--json")
    with log.open("w"):  # which waits until the command reads
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    document = json.loads(out)
    assert process.returncode == document["exit_code"] == INTERRUPTED
    assert document["verdict"] == "interrupted"
    assert err == "oomtune: interrupted\n"


def test_what_is_said_to_a_script_is_not_said_to_oomtune(cli: Cli) -> None:
    words = ("probe", "--script", "train.py", "--report", "no/folder.html")
    assert cli(*words, "--", "--json", "{batch_size}").out == ""
    assert cli(*words, "--json", "--", "{batch_size}").document["error"]["code"] == "output_not_writable"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model.yaml", "--summary", "model.yaml"], "--summary model.yaml is what is probed"),
        (["model.yaml", "--report", "link.html"], "--report link.html is the tuned config"),
        (["model.yaml", "-o", "a.html", "--report", "./a.html"], "--report a.html is the tuned config"),
        (["model.yaml", "--report", "a.html", "--csv", "a.html"], "--csv a.html is also what --report writes"),
        (["--script", "train.py", "--junit", "train.py", "--", "{batch_size}"], "--junit train.py is what is probed"),
        (["--script", "train.py", "--junit", "train.tuned.yaml"], "--junit train.tuned.yaml is the tuned config"),
        (["model.yaml", "--report", "loop.html"], "loop.html can't be written"),
    ],
)
def test_a_probe_writes_no_file_over_another_not_even_by_force(words: list[str], said: str, cli: Cli) -> None:
    (cli.folder / "link.html").symlink_to("model.tuned.yaml")
    (cli.folder / "loop.html").symlink_to("loop.html")
    ran = cli("probe", "--force", *words)
    assert ran.code in (2, 5)
    assert ran.err.startswith(f"oomtune: {said}")


@pytest.mark.parametrize("script", ["", ".", "/"])
def test_a_script_that_is_no_file_is_bad_usage(script: str, cli: Cli) -> None:
    ran = cli("probe", "--script", script, "--", "{batch_size}")
    assert ran.code == 2
    assert "model.script.path: expected a Python file" in ran.err


def keys(document: Any) -> Any:
    """The names in a document, and in the parts that are always there."""
    nested = {name: keys(document[name]) for name in ("memory", "throughput") if name in document}
    return {**dict.fromkeys(document), **nested}


def test_a_document_has_all_its_keys_whatever_happens() -> None:
    error = UsageProblem("wrong", hint="do this")
    ways: tuple[dict[str, Any], ...] = ({}, {"limit_bytes": 30 * MIB}, {"device_class": FailingDevice})
    for way in ways:
        assert keys(probe_document(finished(**way))) == keys(error_document("probe", 2, error))
    checked: CheckResult = dataclasses.replace(CHECKED)
    assert keys(check_document(checked)) == keys(error_document("check", 2, error))
    for command in COMMANDS:
        assert set(error_document(command, 2, error)) >= HEAD


def test_a_probe_that_is_shown_again_keeps_its_verdict_and_the_exit_code_is_the_processes_own() -> None:
    stopped = finished(max_trials=2)
    document = report_document(stopped)
    assert (document["command"], document["exit_code"], document["probe_exit_code"]) == ("report", 0, 7)
    assert document["verdict"] == "stopped"
    assert {verdict: verdict.exit_code for verdict in Verdict} == {
        Verdict.TUNED: 0, Verdict.NOTHING_FITS: 3, Verdict.FAILED: 6, Verdict.STOPPED: 7, Verdict.INTERRUPTED: 130,
    }  # fmt: skip


def test_small_commands_have_a_document_too(cli: Cli) -> None:
    written = cli("init", "new.yaml", "--json", "-v", "--no-color")
    assert (written.document["spec_path"], written.document["verdict"]) == ("new.yaml", "written")
    assert written.err == (cli.folder / "new.yaml").read_text()
    read = cli("schema", "new.yaml", "--json", "-v")
    assert (read.document["specs"], read.err) == (["new.yaml"], "new.yaml: nothing is wrong\n")
    assert set(written.document) >= HEAD
    assert set(read.document) >= HEAD
    (cli.folder / "log").write_text(NOT_MEMORY)
    assert "not in the log" in cli("diagnose", "log", "-v").out
    assert "not in the log" not in cli("diagnose", "log").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--set", "trial.steps=2"], 2, "only device entries apply"),
        (["--set", "device.memory_limit=lots"], 2, "expected a size"),
        (["--memory-limit", "8"], 2, "expected at least 1MiB, with its unit"),
        (["--set", "device.kid=cpu"], 2, "kind"),
    ],
)
def test_the_doctor_refuses_what_a_probe_would_refuse(cli: Cli, words: list[str], code: int, said: str) -> None:
    ran = cli("doctor", *words)
    assert ran.code == code
    assert said in ran.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["init", "NAME.yaml"], 5),
        (["init", "new.yaml", "NAME.keras"], 2),
        (["report", "--list", "NAME"], 2),
        (["report", "NAME.jsonl"], 2),
        (["check", "model.yaml", "--summary", "NAME"], 5),
        (["doctor", "--memory-limit", "9" * 400], 2),
        (["diagnose", "/proc/self/mem"], 2),
    ],
)
def test_what_no_file_can_be_called_and_what_can_not_be_read_is_no_bug(words: list[str], code: int, cli: Cli) -> None:
    ran = cli(*(word.replace("NAME", "a" * 300) for word in words))
    assert ran.code == code, ran.err
    assert "a bug" not in ran.err
    assert "stdout" not in ran.err


@pytest.mark.parametrize("words", [["report", "--list"], ["doctor"], ["probe", "--script", "/train.py"]])
def test_in_a_folder_that_was_removed_that_is_what_is_said(words: list[str], cli: Cli) -> None:
    (cli.folder / "gone").mkdir()
    removed = 'cd gone && rmdir ../gone && exec "$@"'
    ran = subprocess.run(
        ["bash", "-c", removed, "-", sys.executable, "-m", "oomtune", *words],
        cwd=cli.folder, env=cli.environment, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr.splitlines()[0]) == (5, "oomtune: the current folder was removed")
