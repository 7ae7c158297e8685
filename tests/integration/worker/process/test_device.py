"""The GPU path as far as a machine without a GPU shows it: the settings that TensorFlow gets in a trial."""

from __future__ import annotations

import json
import subprocess
import sys

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

def settings(**kind):
    options = device.device_options(order(**kind))
    retry_off = device.session_config(options).gpu_options.experimental.disallow_retry_on_allocation_failure
    return [options.environment, options.gpu_index, options.gpu_limit_mib, retry_off]

answer = {
    "gpu": settings(kind="gpu"),
    "second": settings(kind="gpu", index=1),
    "async": settings(kind="gpu", allocator="cuda_malloc_async"),
    "growing": settings(kind="gpu", memory_growth=True),
    "cpu": settings(kind="cpu"),
}
try:
    device.set_up(order(kind="gpu"))
    answer["prepared"] = "yes"
except Exception as error:
    answer["prepared"] = type(error).__name__
print(json.dumps(answer))
"""


def test_tensorflow_gets_the_limit_and_does_not_wait_for_memory_on_a_gpu() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    environment, index, limit_mib, retry_off = answer["gpu"]
    assert (index, limit_mib, retry_off) == (0, 3 * 1024, True)
    assert "TF_GPU_ALLOCATOR" not in environment
    assert answer["second"][1] == 1
    assert answer["async"][0]["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    assert answer["async"][0]["TF_BFC_MEMORY_DUMP"] == "/tmp/x/dump"
    assert answer["growing"][1:] == [0, None, True]
    environment, index, _, retry_off = answer["cpu"]
    assert (index, retry_off) == (None, False)
    assert environment["TF_CPU_BFC_MEM_LIMIT_IN_MB"] == str(3 * 1024)
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    # The real calls, with a TensorFlow that sees no GPU.
    assert answer["prepared"] == "NoSuchDevice"
