"""The GPU path, as far as a machine without a card can show it: what TensorFlow would be told, and what it sees."""

from __future__ import annotations

import json
import subprocess
import sys

CODE = """
import json
from oomtune.domain import *
from oomtune.worker import device
import tensorflow as tf

def order(**kind):
    return WorkOrder(
        trial=Trial(purpose=Purpose.SEARCH, candidate=Candidate(batch_size=1)), folder="/", scratch="/tmp/x",
        model=ModelSpec(), dataset=DatasetSpec(), training=TrainingSpec(), settings=TrialSettings(),
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
    environment, index, _, retry_off = told["cpu"]
    assert (index, retry_off) == (None, False)
    assert environment["TF_CPU_BFC_MEM_LIMIT_IN_MB"] == str(3 * 1024)
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    # The real calls, on a TensorFlow that sees no card: eager execution is configured, and the card is missed.
    assert told["prepared"] == "NoSuchDevice"
