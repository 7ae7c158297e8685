"""A training script gets the memory settings that its config was tuned with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from oomtune.keras.setup import use_card


class Config:
    """Records its calls, in place of tf.config."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.experimental = self

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append([name, *args, *kwargs.values()])


def tuned_file(folder: Path, **device: Any) -> Path:
    """Write a config that was tuned on a GPU."""
    tuned = {
        "format": 1, "batch_size": 8, "precision": "float32", "remat": "none", "gradient_accumulation_steps": 1,
        "effective_batch_size": 8,
        "evidence": {"confirmed": True, "oomtune": "0", "device": {"kind": "gpu", "memory_limit_bytes": 3 * 1024**3}},
    }  # fmt: skip
    path = folder / "a.tuned.yaml"
    path.write_text(yaml.safe_dump({"device": device, "tuned": tuned}))
    return path


@pytest.mark.parametrize("limit_mib", [3 * 1024, None])
def test_one_gpu_of_several_gets_a_limit_or_memory_growth(limit_mib: int | None) -> None:
    config = Config()
    use_card("card", limit_mib, config)
    # TensorFlow wants growth set for all GPUs that it sees, and refuses a limit for one that grows.
    assert config.calls[0] == ["set_visible_devices", "card", "GPU"]
    setting = ["set_memory_growth", "card", True] if limit_mib is None else ["LogicalDeviceConfiguration", limit_mib]
    assert config.calls[1] == setting


SCRIPT = """
import json, sys
import tensorflow as tf
import oomtune, oomtune.keras
calls = []
class Config:  # records its calls, in place of tf.config
    experimental = property(lambda self: self)
    def list_physical_devices(self, kind):
        return ["first", "second"]
    def __getattr__(self, name):
        return lambda *args, **kwargs: calls.append([name, *map(str, args), *kwargs.values()])
tf.config = Config()
oomtune.keras.setup(oomtune.load_tuned(sys.argv[1]))
print(json.dumps(calls))
"""


def test_a_training_script_gets_the_memory_growth_of_the_trials_on_a_machine_with_two_gpus(tmp_path: Path) -> None:
    path = tuned_file(tmp_path, memory_growth=True)
    ran = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [["set_visible_devices", "first", "GPU"], ["set_memory_growth", "first", "True"]]


SETUP = """
import os, sys
import oomtune, oomtune.keras
tuned = oomtune.load_tuned(sys.argv[1])
assert "tensorflow" not in sys.modules
try:
    oomtune.keras.setup(tuned)
except oomtune.errors.EnvironmentProblem as error:
    print(os.environ["TF_GPU_ALLOCATOR"], error.message)
"""


def test_a_training_script_gets_its_allocator_before_tensorflow_starts(tmp_path: Path) -> None:
    path = tuned_file(tmp_path, allocator="cuda_malloc_async")
    ran = subprocess.run([sys.executable, "-c", SETUP, str(path)], capture_output=True, text=True, check=False)
    assert (
        ran.stdout == "cuda_malloc_async this config was tuned on a GPU, but TensorFlow finds none on this machine\n"
    ), ran.stderr
