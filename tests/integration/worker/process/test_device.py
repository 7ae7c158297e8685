"""The settings that a trial gives TensorFlow, for GPUs as far as a machine without one can show them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CODE = """
import json, os, sys
from oomtune.domain import *
from oomtune.worker.process import device
import tensorflow as tf

order = WorkOrder(
    trial=Search(candidate=Candidate(batch_size=1)), folder="/", scratch="/tmp/x",
    model=Layers(layers=()), dataset=None, training=TrainingSpec(), settings=TrialSettings(),
    device=Device(name="x", **json.loads(sys.argv[1])), budget=Budget(limit_bytes=3 * 1024**3 + 5),
)
if order.device.kind == "gpu":
    try:
        device.set_up(order)  # the real calls, with a TensorFlow that sees no GPU
        raise SystemExit("a GPU was set up")
    except device.NoSuchDevice:
        pass

calls = []

class Config:  # records its calls, in place of tf.config
    experimental = property(lambda self: self)
    def list_physical_devices(self, kind):
        return ["first", "second"]
    def __getattr__(self, name):
        return lambda *args, **kwargs: calls.append([name, *map(str, args), *kwargs.values()])

def enable_eager_execution(config):
    calls.append(["retry off", config.gpu_options.experimental.disallow_retry_on_allocation_failure])

tf.config = Config()
tf.compat.v1.enable_eager_execution = enable_eager_execution
device.set_up(order)
print(json.dumps([calls, dict(os.environ)]))
"""
LIMIT_MIB = 3 * 1024


@pytest.mark.parametrize(
    ("entries", "card", "memory"),
    [
        ({}, "first", ["LogicalDeviceConfiguration", LIMIT_MIB]),
        ({"index": 1}, "second", ["LogicalDeviceConfiguration", LIMIT_MIB]),
        ({"allocator": "cuda_malloc_async"}, "first", ["LogicalDeviceConfiguration", LIMIT_MIB]),
        ({"memory_growth": True}, "first", ["set_memory_growth", "first", "True"]),
    ],
)
def test_a_gpu_trial_gets_its_card_and_limit_and_does_not_wait_for_memory(
    entries: dict[str, object], card: str, memory: list[object]
) -> None:
    calls, environment = set_up({"kind": "gpu", **entries})
    assert calls[:3] == [["retry off", True], ["set_visible_devices", card, "GPU"], memory]
    assert environment["TF_BFC_MEMORY_DUMP"] == "/tmp/x/dump"
    assert environment.get("TF_GPU_ALLOCATOR") == entries.get("allocator")


def test_a_cpu_trial_gets_its_limit_and_no_gpu() -> None:
    calls, environment = set_up({"kind": "cpu"})
    assert calls == []
    assert environment["TF_CPU_BFC_MEM_LIMIT_IN_MB"] == str(LIMIT_MIB)
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"


def set_up(device: dict[str, object]) -> tuple[list[list[object]], dict[str, str]]:
    """Set a device up in a separate process; return the calls to TensorFlow and the environment."""
    ran = subprocess.run([sys.executable, "-c", CODE, json.dumps(device)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    calls, environment = json.loads(ran.stdout)
    return calls, environment
