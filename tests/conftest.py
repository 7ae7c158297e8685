"""What tests share: the real command line in a process of its own, and specs small enough to probe in seconds."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import Cli, processes_with
from tests.support.specs import small_spec


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Libraries tidy the temporary folder up at a clean exit, which the workers of pytest-xdist do not have."""
    tmp_path_factory.getbasetemp()  # pytest's own stays where it is
    with (
        tempfile.TemporaryDirectory(prefix="oomtune-tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small spec, with dotted keys overridden, and gives its path."""

    def write(file: str = "model.yaml", **overrides: Any) -> Path:
        path = tmp_path / file
        path.write_text(yaml.safe_dump(small_spec(**overrides), sort_keys=False))
        return path

    return write


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    """A value for the environment that only this test's processes have; what is left of them is ended."""
    value = f"marker-{tmp_path.name}-{os.getpid()}"
    yield value
    for pid in processes_with(value):
        os.kill(pid, signal.SIGKILL)
