"""The process between the command line and the trials."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("heavy", ["tensorflow", "keras", "numpy", "pydantic"])
def test_a_zygote_loads_no_heavy_library_before_its_mode_needs_it(heavy: str) -> None:
    code = f"import sys, oomtune.worker.process.zygote; print({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
