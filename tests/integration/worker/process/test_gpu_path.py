"""The GPU path, as far as a machine without a card can show it: what TensorFlow would be told, and what it sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from oomtune.keras.setup import use_card

CODE = """
import json
from oomtune.domain import *
from oomtune.worker.process import device
import tensorflow as tf

def order(**kind):
    return WorkOrder(
        trial=Search(candidate=Candidate(batch_size=1)), folder="/", scratch="/tmp/x",
        model=Layers(layers=()), dataset=None, training=TrainingSpec(), settings=TrialSettings(),
        device=Device(name="x", **kind), budget=Budget(limit_bytes=3 * 1024**3 + 5),
    )

def told(**kind):
    chosen = device.options(order(**kind))
    retry_off = device.session_config(chosen).gpu_options.experimental.disallow_retry_on_allocation_failure
    return [chosen.environment, chosen.gpu_index, chosen.gpu_limit_mib, retry_off]

answer = {
    "gpu": told(kind="gpu"),
    "second": told(kind="gpu", index=1),
    "async": told(kind="gpu", allocator="cuda_malloc_async"),
    "growing": told(kind="gpu", memory_growth=True),
    "cpu": told(kind="cpu"),
}
try:
    device.prepare(order(kind="gpu"))
    answer["prepared"] = "yes"
except Exception as error:
    answer["prepared"] = type(error).__name__
print(json.dumps(answer))
"""


def test_tensorflow_would_be_told_the_limit_and_not_to_wait_on_a_gpu() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    environment, index, limit_mib, retry_off = told["gpu"]
    assert (index, limit_mib, retry_off) == (0, 3 * 1024, True)
    assert "TF_GPU_ALLOCATOR" not in environment
    assert told["second"][1] == 1
    assert told["async"][0]["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    assert told["async"][0]["TF_BFC_MEMORY_DUMP"] == "/tmp/x/dump"
    assert told["growing"][1:] == [0, None, True]
    environment, index, _, retry_off = told["cpu"]
    assert (index, retry_off) == (None, False)
    assert environment["TF_CPU_BFC_MEM_LIMIT_IN_MB"] == str(3 * 1024)
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    # The real calls, on a TensorFlow that sees no card: eager execution is configured, and the card is missed.
    assert told["prepared"] == "NoSuchDevice"


class Config:
    """Keeps what it is told, in the place of tf.config."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.experimental = self

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.told.append([name, *args, *kwargs.values()])


def tuned_file(folder: Path, **asked: Any) -> Path:
    """A config that was tuned on a GPU."""
    tuned = {
        "format": 1, "batch_size": 8, "precision": "float32", "remat": "none", "gradient_accumulation_steps": 1,
        "effective_batch_size": 8,
        "evidence": {"confirmed": True, "oomtune": "0", "device": {"kind": "gpu", "memory_limit_bytes": 3 * 1024**3}},
    }  # fmt: skip
    path = folder / "a.tuned.yaml"
    path.write_text(yaml.safe_dump({"device": asked, "tuned": tuned}))
    return path


@pytest.mark.parametrize("limit_mib", [3 * 1024, None])
def test_one_card_of_several_has_a_limit_or_memory_that_grows(limit_mib: int | None) -> None:
    config = Config()
    use_card("card", limit_mib, config)
    # All cards that TensorFlow sees would have to grow, and it refuses a limit for one that does.
    assert config.told[0] == ["set_visible_devices", "card", "GPU"]
    how = ["set_memory_growth", "card", True] if limit_mib is None else ["LogicalDeviceConfiguration", limit_mib]
    assert config.told[1] == how


SCRIPT = """
import json, sys
import tensorflow as tf
import oomtune, oomtune.keras
told = []
class Config:  # keeps what it is told, in the place of tf.config
    experimental = property(lambda self: self)
    def list_physical_devices(self, kind):
        return ["first", "second"]
    def __getattr__(self, name):
        return lambda *args, **kwargs: told.append([name, *map(str, args), *kwargs.values()])
tf.config = Config()
oomtune.keras.setup(oomtune.load_tuned(sys.argv[1]))
print(json.dumps(told))
"""


def test_a_training_script_has_the_growth_that_the_trials_had_on_a_machine_with_two_cards(tmp_path: Path) -> None:
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


def test_the_allocator_is_set_in_a_training_script_before_tensorflow_starts(tmp_path: Path) -> None:
    path = tuned_file(tmp_path, allocator="cuda_malloc_async")
    ran = subprocess.run([sys.executable, "-c", SETUP, str(path)], capture_output=True, text=True, check=False)
    assert ran.stdout == "cuda_malloc_async this config was tuned on a GPU, and TensorFlow sees none here\n", ran.stderr
