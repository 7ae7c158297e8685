"""Finding a browser: the tests and the install script look for the same names, and a missing one is reported."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser.conftest import BROWSERS, HOW_TO_GET_IT, chromium, require_chromium
from tests.support.cli import ROOT


@pytest.mark.parametrize(("in_ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_browser_fails_in_ci_and_skips_elsewhere(
    in_ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", in_ci)
    monkeypatch.setenv("PATH", "")
    for name in ("CHROMIUM", "CHROMEDRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(outcome, match=HOW_TO_GET_IT):
        require_chromium()


def write_command(folder: Path, name: str, text: str = "") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def run_install_script(path: Path) -> subprocess.CompletedProcess[str]:
    shell = shutil.which("sh")
    assert shell is not None
    script = str(ROOT / "tests" / "browser" / "install.sh")
    return subprocess.run([shell, script], env={"PATH": str(path)}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", BROWSERS)
def test_the_install_script_finds_every_browser_that_the_tests_find(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (name, "chromedriver"):
        write_command(tmp_path, command)
    ran = run_install_script(tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    for variable in ("CHROMIUM", "CHROMEDRIVER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium() == (str(tmp_path / name), str(tmp_path / "chromedriver"))


def test_without_a_browser_the_install_script_says_in_one_line_how_to_get_it(tmp_path: Path) -> None:
    (line,) = run_install_script(tmp_path).stderr.splitlines()
    assert "apt-get install chromium chromium-driver" in line


def test_the_ci_script_runs_the_tests_as_ci(tmp_path: Path) -> None:
    write_command(tmp_path, "make", 'echo "$1 $CI"')
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    environment = {**inherited, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run([str(ROOT / ".ci" / "run")], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["lint true", "test true"]
