"""What every command does alike: help, streams, exit codes and one JSON document, whatever happens."""

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
SPEC_OPTIONS = ("--device", "--memory-limit", "--like", "--set")
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
def test_shared_options_are_in_the_help_of_every_command(command: str, cli: Cli) -> None:
    text = cli(command, "--help").out
    expected = SHARED + (SPEC_OPTIONS if command in ("probe", "check", "explain", "doctor") else ())
    assert [option for option in expected if not re.search(rf"{option}\b", text)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_no_types_of_python(command: str, cli: Cli) -> None:
    text = cli(command, "--help").out
    assert [word for word in ("<list", "<path", "<str", "Path]") if word in text] == []
    assert "{" not in text.partition("\n")[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_exit_codes(command: str, cli: Cli) -> None:
    assert re.search(r"Exit codes: 0 \w+", " ".join(cli(command, "--help").out.split()))


def test_the_help_of_check_has_every_exit_code_and_an_example_of_each_use(cli: Cli) -> None:
    text = " ".join(cli("check", "--help").out.split())
    codes = text.partition("Exit codes: ")[2]
    assert [code for code in (0, 1, 2, 4, 5, 6, 130) if f"{code} " not in codes] == []
    for flag in ("--against T4", "--update", "--junit", "--tolerance"):
        assert f"oomtune check model.tuned.yaml {flag}" in text


def test_help_loads_nothing_heavy(cli: Cli) -> None:
    code = (
        "import sys; sys.argv = ['oomtune', '--help']\n"
        "from oomtune.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in sys.modules if m in sys.stdin.read().split()], file=sys.stderr)\n"
    )
    heavy = "tensorflow keras numpy plotly jinja2 tensorboard pydantic rich yaml"
    ran = subprocess.run([sys.executable, "-c", code], input=heavy, capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


def test_version_prints_the_version(cli: Cli) -> None:
    assert re.fullmatch(r"oomtune \d+\.\d+\.\d+\S*\n", cli("--version").out)


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
def test_a_reader_that_leaves_early_does_not_change_the_verdict(words: list[str], code: int, cli: Cli) -> None:
    (cli.folder / "log").write_text(NOT_MEMORY)
    ran = without_a_reader(cli, *words)
    assert (ran.returncode, ran.stderr) == (code, "")


@pytest.mark.parametrize("stderr", ["closed", "on a full disk", "without a reader"])
def test_an_unwritable_stderr_does_not_change_the_verdict(stderr: str, cli: Cli) -> None:
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


def test_stdout_escapes_what_it_cannot_encode_and_may_be_closed(cli: Cli) -> None:
    name = os.fsdecode(b"caf\xe9.yaml")
    ran = cli("init", name, env={"PYTHONIOENCODING": "ascii:strict"})
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(r"wrote caf\udce9.yaml")
    closed = ["bash", "-c", 'exec "$@" >&-', "-", sys.executable, "-m", "oomtune", "schema"]
    ended = subprocess.run(closed, cwd=cli.folder, env=cli.environment, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_interrupted_command_without_a_ledger_promises_none(cli: Cli) -> None:
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


def test_options_after_the_dashes_belong_to_the_script(cli: Cli) -> None:
    words = ("probe", "--script", "train.py", "--report", "no/folder.html")
    assert cli(*words, "--", "--json", "{batch_size}").out == ""
    assert cli(*words, "--json", "--", "{batch_size}").document["error"]["code"] == "output_not_writable"


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_a_probe_never_writes_one_of_its_files_over_another(words: list[str], message: str, cli: Cli) -> None:
    (cli.folder / "link.html").symlink_to("model.tuned.yaml")
    (cli.folder / "loop.html").symlink_to("loop.html")
    ran = cli("probe", "--force", *words)
    assert ran.code in (2, 5)
    assert ran.err.startswith(f"oomtune: {message}")


@pytest.mark.parametrize("script", ["", ".", "/"])
def test_a_script_that_is_not_a_file_is_bad_usage(script: str, cli: Cli) -> None:
    ran = cli("probe", "--script", script, "--", "{batch_size}")
    assert ran.code == 2
    assert "model.script.path: expected a Python file" in ran.err


def keys(document: Any) -> Any:
    """The names in a document, and in the parts that are always there."""
    nested = {name: keys(document[name]) for name in ("memory", "throughput") if name in document}
    return {**dict.fromkeys(document), **nested}


def test_a_document_has_all_its_keys_whatever_happens() -> None:
    error = UsageProblem("wrong", hint="do this")
    situations: tuple[dict[str, Any], ...] = ({}, {"limit_bytes": 30 * MIB}, {"device_class": FailingDevice})
    for situation in situations:
        assert keys(probe_document(finished(**situation))) == keys(error_document("probe", 2, error))
    checked: CheckResult = dataclasses.replace(CHECKED)
    assert keys(check_document(checked)) == keys(error_document("check", 2, error))
    for command in COMMANDS:
        assert set(error_document(command, 2, error)) >= HEAD


def test_a_report_keeps_the_verdict_of_the_probe_and_has_its_own_exit_code() -> None:
    stopped = finished(max_trials=2)
    document = report_document(stopped)
    assert (document["command"], document["exit_code"], document["probe_exit_code"]) == ("report", 0, 7)
    assert document["verdict"] == "stopped"
    assert {verdict: verdict.exit_code for verdict in Verdict} == {
        Verdict.TUNED: 0, Verdict.NOTHING_FITS: 3, Verdict.FAILED: 6, Verdict.STOPPED: 7, Verdict.INTERRUPTED: 130,
    }  # fmt: skip


def test_init_schema_and_diagnose_have_a_document_and_verbose_output(cli: Cli) -> None:
    written = cli("init", "new.yaml", "--json", "-v", "--no-color")
    assert (written.document["spec_path"], written.document["verdict"]) == ("new.yaml", "written")
    assert written.err == (cli.folder / "new.yaml").read_text()
    read = cli("schema", "new.yaml", "--json", "-v")
    assert (read.document["specs"], read.err) == (["new.yaml"], "new.yaml: valid\n")
    assert set(written.document) >= HEAD
    assert set(read.document) >= HEAD
    (cli.folder / "log").write_text(NOT_MEMORY)
    assert "not in the log" in cli("diagnose", "log", "-v").out
    assert "not in the log" not in cli("diagnose", "log").out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--set", "trial.steps=2"], 2, "only device entries apply"),
        (["--set", "device.memory_limit=lots"], 2, "expected a size"),
        (["--memory-limit", "8"], 2, "expected at least 1MiB, with its unit"),
        (["--set", "device.kid=cpu"], 2, "kind"),
    ],
)
def test_the_doctor_refuses_what_a_probe_would_refuse(cli: Cli, words: list[str], code: int, message: str) -> None:
    ran = cli("doctor", *words)
    assert ran.code == code
    assert message in ran.err


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
def test_impossible_names_and_unreadable_files_are_not_bugs(words: list[str], code: int, cli: Cli) -> None:
    ran = cli(*(word.replace("NAME", "a" * 300) for word in words))
    assert ran.code == code, ran.err
    assert "a bug" not in ran.err
    assert "stdout" not in ran.err


@pytest.mark.parametrize("words", [["report", "--list"], ["doctor"], ["probe", "--script", "/train.py"]])
def test_a_removed_current_folder_is_reported_as_such(words: list[str], cli: Cli) -> None:
    (cli.folder / "gone").mkdir()
    removed = 'cd gone && rmdir ../gone && exec "$@"'
    ran = subprocess.run(
        ["bash", "-c", removed, "-", sys.executable, "-m", "oomtune", *words],
        cwd=cli.folder, env=cli.environment, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr.splitlines()[0]) == (5, "oomtune: the current folder was removed")
