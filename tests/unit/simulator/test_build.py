"""Building the simulator: once, whole or not at all, and with a clear sentence if it can't be built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from oomtune.errors import SimulatorUnavailable
from oomtune.simulator.build import HOOKS, LIBRARY, SONAMES, build_simulator


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "oomtune" / "simulator"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a shell script the only compiler on the PATH."""

    def make(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / "cc"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return path

    return make


def test_a_build_is_whole_and_a_second_call_compiles_nothing(cache: Path) -> None:
    notices: list[str] = []
    first = build_simulator(notices.append)
    assert {path.name for path in first.folder.iterdir()} == {LIBRARY, HOOKS, *SONAMES}
    assert build_simulator(notices.append) == first
    assert len(notices) == 1
    assert [path.name for path in cache.iterdir()] == [first.folder.name]


def test_two_builds_at_once_end_with_one_result(cache: Path) -> None:
    code = "from oomtune.simulator.build import build_simulator; print(build_simulator(lambda text: None).folder)"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {process.communicate(timeout=300)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(folders) == 1
    assert len(list(cache.iterdir())) == 1


def test_another_compiler_gets_a_build_of_its_own(cache: Path, compiler: Callable[[str], Path]) -> None:
    first = build_simulator(lambda text: None)
    real = shutil.which("cc", path=os.defpath) or "/usr/bin/cc"
    compiler(f'PATH={os.defpath}; exec {real} "$@"')
    assert build_simulator(lambda text: None).folder != first.folder


def test_a_machine_without_a_compiler_is_told_how_to_get_one(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SimulatorUnavailable, match="no C compiler") as caught:
        build_simulator(lambda text: None)
    assert "oomtune[simulator]" in caught.value.hint
    assert not cache.exists()


def test_a_compiler_that_fails_leaves_nothing_behind(cache: Path, compiler: Callable[[str], Path]) -> None:
    compiler('[ "$1" = --version ] && exit 0; echo "x.c:1: error: no such luck" >&2; exit 1')
    with pytest.raises(SimulatorUnavailable, match=r"failed: x\.c:1: error: no such luck"):
        build_simulator(lambda text: None)
    assert list(cache.iterdir()) == []


def test_a_cache_that_is_a_file_is_reported(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("")
    with pytest.raises(SimulatorUnavailable, match="can't be written") as caught:
        build_simulator(lambda text: None)
    assert "XDG_CACHE_HOME" in caught.value.hint
