"""Is a text a failure for want of memory? Texts of our own, in the forms that TensorFlow and its world use."""

from __future__ import annotations

import pytest

from oomtune import classify

DEVICE = [
    "ResourceExhaustedError: OOM when allocating tensor with shape[96,512,2048] and type half on "
    "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:MatMul]",
    "Graph execution error:\n\nOut of memory while trying to allocate 1610612736 bytes.\n\t [[{{node StatefulPartitionedCall}}]]",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes. [Op:__inference_step_881]",
    "tensorflow.python.framework.errors_impl.InternalError: Failed copying input tensor from "
    "/job:localhost/replica:0/task:0/device:CPU:0 to /job:localhost/replica:0/task:0/device:GPU:0 in order to run "
    "Cast: Dst tensor is not initialized. [Op:Cast]",
    "E external/xla/stream_executor/cuda/cuda_driver.cc:100] could not load module: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "F tensorflow/stream_executor/cuda/cuda_dnn.cc:5] Check failed: status == CUDNN_STATUS_ALLOC_FAILED",
    "\x1b[31mW bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 96.00MiB requested by "
    "op model/dense/MatMul\x1b[0m\r\nAborted",
    "OOM when allocating tensor with shape[64,3,224,224] and type float on /job:localhost/replica:0/task:0/device:CPU:0 "
    "by allocator bfc_cpu_allocator_for_gpu",
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.20G of 15.48G hbm.",
]
HOST = [
    "Epoch 3/10\n 120/900 ━━━━━━━━━━━━━━━━ 3:10 240ms/step - loss: 0.41Killed",
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (10000000000,) and "
    "data type float32",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "OSError: [Errno 12] Cannot allocate memory",
    "kernel: Out of memory: Killed process 4242 (python) total-vm:81234567kB",
    "OOM when allocating tensor with shape[9,9] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu",
    "Resource exhausted: MemoryError: Unable to allocate 1. GiB for an array\n\t [[{{node PyFunc}}]]",
]
NOT = [
    "",
    "Epoch 1/2\nloss: 0.3",
    "ResourceExhaustedError: ckpt/part-00000.tempstate812; No space left on device [Op:SaveV2]",
    "RESOURCE_EXHAUSTED: Received message larger than max (20971520 vs. 4194304)",
    "google.api_core.exceptions.ResourceExhausted: 429 Quota exceeded for quota metric",
    "W bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.03GiB with freed_by_count=0. "
    "The caller indicates that this is not a failure, but this may mean that there could be performance gains",
    "ValueError: Input 0 of layer dense is incompatible with the layer: expected axis -1 to have value 64",
    "InvalidArgumentError: indices[0,3] = 5000 is not in [0, 5000) [Op:ResourceGather]",
    "E cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",
    "the process was not killed by anyone",
]


@pytest.mark.parametrize("text", DEVICE)
def test_device_memory_is_recognised(text: str) -> None:
    assert classify(text).kind == "device_oom"


@pytest.mark.parametrize("text", HOST)
def test_host_memory_is_recognised(text: str) -> None:
    assert classify(text).kind == "host_oom"


@pytest.mark.parametrize("text", NOT)
def test_what_is_not_memory_is_never_called_memory(text: str) -> None:
    assert classify(text).kind == "not_oom"


def test_the_facts_of_the_failure_are_read() -> None:
    found = classify(DEVICE[0])
    assert found.tensor_shape == (96, 512, 2048)
    assert (found.dtype, found.op, found.allocator) == ("half", "MatMul", "GPU_0_bfc")
    assert found.device == "/job:localhost/replica:0/task:0/device:GPU:0"
    assert classify(DEVICE[2]).bytes_requested == 3221225472
    allocator = classify(DEVICE[6])
    assert (allocator.op, allocator.bytes_requested) == ("model/dense/MatMul", 96 * 1024**2)
