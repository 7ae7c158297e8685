"""`oomtune diagnose`: files, stdin, encodings, exit codes and the screen."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomtune.cli import diagnose
from oomtune.errors import UsageProblem
from tests.support.cli import Cli
from tests.support.failure_texts import DEVICE, HOST, NOT

GRAPH = DEVICE[1].text


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(GRAPH)
    return path


def test_one_screen_shows_what_happened_where_and_what_to_do(cli: Cli, log: Path) -> None:
    ran = cli("diagnose", log, env={"COLUMNS": "120"})
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.out.splitlines()) <= 40
    for words in (
        "Out of device memory.", "line 9", "[8, 12, 2048, 2048], float32, 1.5 GiB", "block_3/attention", "GPU_0_bfc",
        "What to do:", "search: {sequence_length: [512, 1024]}", "search: {remat: [none, full]}", "batch_size=4",
    ):  # fmt: skip
        assert words in ran.out, words


def test_the_document_has_the_same_facts(cli: Cli, log: Path) -> None:
    ran = cli("diagnose", log, "--json")
    document = ran.document
    assert (document["command"], document["exit_code"], document["verdict"]) == ("diagnose", 0, "device_oom")
    assert document["tensor"] == {"shape": [8, 12, 2048, 2048], "dtype": "float32", "bytes": 1610612736}
    assert (document["op"], document["line_number"], document["error"]) == ("model/block_3/attention/MatMul", 9, None)
    assert document["advice"][0]["spec"] == "search: {sequence_length: [512, 1024]}"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (HOST[0].text, 0, "Out of host memory."),
        ("OSError: [Errno 28] No space left on device", 3, "Not memory: a full disk."),
        (NOT[1].text, 2, "No failure in this log."),
    ],
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path, text: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.write_text(text)
    assert diagnose.command(str(path)) == code
    assert said in capsys.readouterr().out


def test_a_log_can_come_from_stdin(cli: Cli) -> None:
    command = [sys.executable, "-m", "oomtune", "diagnose", "-", "--json"]
    ran = subprocess.run(command, input=GRAPH.encode(), capture_output=True, env=cli.environment, check=False)
    assert ran.returncode == 0
    assert b'"verdict": "device_oom"' in ran.stdout


def test_the_verdict_survives_a_reader_that_leaves(cli: Cli, log: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "oomtune", "diagnose", str(log)]
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=cli.environment, check=False)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_closed_stdin_is_bad_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageProblem, match="stdin is closed"):
        diagnose.command("-")


@pytest.mark.parametrize("before", [b"\n" * 2**21, b"\0" * 2**21, b" \r\n\0" * 2**19], ids=["blank", "NULs", "both"])
def test_empty_output_before_a_crash_is_skipped(
    tmp_path: Path, before: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(before + GRAPH.encode())
    assert diagnose.command(str(path), as_json=True) == 0
    assert f'"line_number": {before.count(chr(10).encode()) + 9}' in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_log_of_any_encoding_is_read(cli: Cli, tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "windows.log"
    path.write_bytes(f"\u00e9poque 1\r\n{GRAPH}".replace("\n", "\r\n").encode(encoding))
    document = cli("diagnose", path, "--json").document
    assert (document["verdict"], document["tensor"]["shape"]) == ("device_oom", [8, 12, 2048, 2048])


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_parts_of_a_log_may_have_different_encodings(
    tmp_path: Path, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One shell starts the log, a second one appends bytes, and the first one appends again."""
    path = tmp_path / "a.log"
    began = "\ufeff学习 上 1\r\n".encode(encoding)
    path.write_bytes(began + GRAPH.encode() + "\n训练 ends\r\n".encode(encoding))
    assert diagnose.command(str(path), as_json=True) == 0
    assert '"line_number": 10,' in capsys.readouterr().out
    path.write_bytes(began + "époque 1\n".encode("latin-1") + GRAPH.replace("\n", "\r\n").encode(encoding))
    assert diagnose.command(str(path), as_json=True) == 0
    assert '"line_number": 11,' in capsys.readouterr().out


def test_a_long_part_without_line_ends_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    bar = "\r 12/900 ━━━━ loss: 0.2"
    parts = ("\ufeff" + bar * 2**16).encode("utf-16-le"), b"\n", (bar * 2**16).encode(), b"\n", GRAPH.encode()
    path.write_bytes(b"".join(parts))
    assert diagnose.command(str(path), as_json=True) == 0
    assert '"shape": [8, 12, 2048, 2048]' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "encoding"),
    [
        ("Getötet", "latin-1"),
        ("Tué", "latin-1"),
        ("Tué", "utf-8"),
        ("Убито", "cp1251"),
        ("已杀死", "gbk"),
        ("已殺死", "big5"),
    ],
)
@pytest.mark.parametrize("line", ["/bin/bash: 1: 4242 {}                  python train.py", "{}"])
def test_killed_is_understood_in_the_language_of_the_shell(tmp_path: Path, word: str, encoding: str, line: str) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(f"Epoch 1/3\n{line.format(word)}\n".encode(encoding))
    assert diagnose.command(str(path), quiet=True) == 0


def test_log_text_is_printed_verbatim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "markup.log"
    path.write_text("ResourceExhaustedError: failed to allocate memory [bold]x[/bold] [/red] [Op:AddV2]")
    diagnose.command(str(path))
    assert "[bold]x[/bold] [/red]" in capsys.readouterr().out


def test_a_missing_log_prints_one_document_and_exits_2(cli: Cli) -> None:
    ran = cli("diagnose", "missing.log", "--json")
    assert (ran.code, ran.document["exit_code"], ran.document["command"]) == (2, 2, "diagnose")
    assert "no such file" in ran.document["error"]["message"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "is a folder"), (b"\n", "is empty"), (gzip.compress(GRAPH.encode() * 50), "is not text")],
    ids=["folder", "empty", "packed"],
)
def test_a_file_that_is_no_log_is_bad_usage(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "a.log"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UsageProblem, match=said):
        diagnose.command(str(path))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8-sig"])
def test_other_encodings_are_read(tmp_path: Path, encoding: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(GRAPH.replace("\n", "\r\n").encode(encoding))
    assert diagnose.command(str(path), as_json=True) == 0
    assert '"verdict": "device_oom"' in capsys.readouterr().out
