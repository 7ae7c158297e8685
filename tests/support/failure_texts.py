"""Failures as logs tell of them, in our own words and numbers: what each is, and the exit code that `diagnose` gives it."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Text(NamedTuple):
    name: str
    kind: Literal["device_oom", "host_oom", "not_oom"]
    exit_code: int
    text: str


_GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
_TRACE = 'Traceback (most recent call last):\n  File "train.py", line 40, in <module>\n    model.fit(data)\n'
_OPTIONAL = (
    "2021-02-03 04:05:06.700000: W tensorflow/core/common_runtime/bfc_allocator.cc:248] Allocator (GPU_0_bfc) ran out of "
    "memory trying to allocate 3.11GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean "
    "that there could be performance gains if more memory were available.\n"
)
_SHRINKING = "".join(
    f"2018-05-06 07:08:09.1: E tensorflow/stream_executor/cuda/cuda_driver.cc:936] failed to allocate {size}M ({size << 20} "
    "bytes) from device: CUDA_ERROR_OUT_OF_MEMORY\n"
    for size in (4000, 3600, 3240)
)
_BAR = "  120/900 [===>..........................] - ETA: 1:10 - loss: 0.4410 - mean_absolute_error: 0.2210\n"

DEVICE = [
    Text("eager op", "device_oom", 0, f"ResourceExhaustedError: OOM when allocating tensor with shape[96,512,2048] and type half on {_GPU} by allocator GPU_0_bfc [Op:MatMul]"),
    Text("graph, wrapped in a traceback", "device_oom", 0, f"{_TRACE}tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n\nDetected at node 'model/block_3/attention/MatMul' defined at (most recent call last):\n  File \"train.py\", line 12, in <module>\nNode: 'model/block_3/attention/MatMul'\nOOM when allocating tensor with shape[8,12,2048,2048] and type float on {_GPU} by allocator GPU_0_bfc\n\t [[{{{{node model/block_3/attention/MatMul}}}}]]\nHint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom to RunOptions."),
    Text("XLA", "device_oom", 0, "Graph execution error:\n\nOut of memory while trying to allocate 1610612736 bytes.\n\t [[{{node StatefulPartitionedCall}}]]"),
    Text("XLA status", "device_oom", 0, "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes. [Op:__inference_step_881]"),
    Text("XLA on a device by its number", "device_oom", 0, "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 9.25GiB (9932111872B) on device ordinal 3"),
    Text("logged by PJRT", "device_oom", 0, "E0117 11:12:13.141516  4242 pjrt_stream_executor_client.cc:2985] Execution of replica 0 failed: RESOURCE_EXHAUSTED: Out of memory allocating 805306368 bytes."),
    Text("a copy to the card", "device_oom", 0, f"tensorflow.python.framework.errors_impl.InternalError: Failed copying input tensor from {_CPU} to {_GPU} in order to run Cast: Dst tensor is not initialized. [Op:Cast]"),
    Text("a module that can't be loaded", "device_oom", 0, "INTERNAL: Failed to load in-memory CUBIN (compiled for a different GPU?).: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    Text("a handle", "device_oom", 0, "F tensorflow/stream_executor/cuda/cuda_dnn.cc:5] Check failed: status == CUDNN_STATUS_ALLOC_FAILED"),
    Text("cuSolver", "device_oom", 0, "InternalError: cuSolverDN call failed with status CUSOLVER_STATUS_ALLOC_FAILED [Op:Svd]"),
    Text("in colours", "device_oom", 0, "\x1b[31mW tensorflow/core/common_runtime/bfc_allocator.cc:479] Allocator (GPU_0_bfc) ran out of memory trying to allocate 96.00MiB requested by op model/dense/MatMul\x1b[0m\r\nAborted"),
    Text("the CPU with a card's budget", "device_oom", 0, f"OOM when allocating tensor with shape[64,3,224,224] and type float on {_CPU} by allocator bfc_cpu_allocator_for_gpu"),
    Text("a TPU", "device_oom", 0, "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.20G of 15.48G hbm. Exceeded hbm capacity by 1.72G."),
    Text("a TPU with room in pieces", "device_oom", 0, "Error loading program 'jit_step': Attempting to reserve 7.10G at the bottom of memory. That was not possible. There are 7.44G free, 0B reserved, and 3.70G reservable."),
    Text("the driver, asked for less and less", "device_oom", 0, _SHRINKING),
    Text("the driver, once, and then a library without a reason", "device_oom", 0, _SHRINKING.splitlines()[0] + "\nInternalError: Blas GEMM launch failed : a.shape=(64, 512), b.shape=(512, 8) [Op:MatMul]"),
    Text("a library beside a full card", "device_oom", 0, "2022-03-04 05:06:07.8: E tensorflow/stream_executor/cuda/cuda_dnn.cc:389] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n2022-03-04 05:06:07.9: E tensorflow/stream_executor/cuda/cuda_dnn.cc:398] Memory usage: 6291456 bytes free, 8361672704 bytes total.\nUnknownError: Failed to get convolution algorithm. This is probably because cuDNN failed to initialize"),
    Text("no algorithm had room to work in", "device_oom", 0, f"{_OPTIONAL}tensorflow.python.framework.errors_impl.NotFoundError: No algorithm worked!\n\t [[node model/conv/Conv2D (defined at a.py:3) ]]"),
    Text("the async allocator", "device_oom", 0, "2023-04-05 06:07:08.9: E tensorflow/core/common_runtime/gpu/gpu_cudamallocasync_allocator.cc:288] gpu_async_0 cuMemAllocAsync failed to allocate 402653184 bytes: CUDA error: out of memory (CUDA_ERROR_OUT_OF_MEMORY)\n Reported by CUDA: Free memory/Total memory: 18087936/8361672704"),
    Text("a card that others hold", "device_oom", 0, "RuntimeError: CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory"),
    Text("another framework", "device_oom", 0, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB (GPU 0; 10.75 GiB total capacity; 8.20 GiB already allocated; 512.00 MiB free; 9.10 GiB reserved in total by PyTorch)"),
    Text("AMD", "device_oom", 0, "RuntimeError: HIP out of memory. Tried to allocate 96.00 MiB. hipErrorOutOfMemory"),
    Text("Metal", "device_oom", 0, "Error: command buffer exited with error status.\n\tError: \n\t(null)\n\tInsufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"),
    Text("the optimizer", "device_oom", 0, f"ResourceExhaustedError: OOM when allocating tensor with shape[30522,768] and type float on {_GPU} by allocator GPU_0_bfc\n\t [[node Adam/Adam/update_3/mul_1 (defined at fit.py:9) ]]"),
    Text("caught once, and not the second time", "device_oom", 0, f"ResourceExhaustedError: OOM when allocating tensor with shape[512,8] on {_GPU}\nretrying with batch 256\n{_BAR}{_TRACE}ResourceExhaustedError: OOM when allocating tensor with shape[256,8] and type float on {_GPU} by allocator GPU_0_bfc"),
    Text("stdout flushed after the traceback", "device_oom", 0, f"{_TRACE}ResourceExhaustedError: OOM when allocating tensor with shape[512,8] on {_GPU}\nEpoch 1/4\n{_BAR}"),
]  # fmt: skip

HOST = [
    Text("killed in mid-bar", "host_oom", 0, "Epoch 3/10\n 120/900 ━━━━━━━━━━━━━━━━ 3:10 240ms/step - loss: 0.41Killed"),
    Text("killed, says bash", "host_oom", 0, "./run.sh: line 7: 31337 Killed                  python train.py --epochs 3"),
    Text("killed, says zsh", "host_oom", 0, "zsh: killed     python train.py"),
    Text("killed by a full shuffle buffer", "host_oom", 0, "2019-10-11 12:13:14.5: I tensorflow/core/kernels/data/shuffle_dataset_op.cc:111] Filling up shuffle buffer (this may take a while): 591 of 2048\n./train.sh:  60: 11880 killed              python3 train.py"),
    Text("numpy", "host_oom", 0, "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (10000000000,) and data type float32"),
    Text("numpy within TensorFlow", "host_oom", 0, "Resource exhausted: MemoryError: Unable to allocate 1. GiB for an array\n\t [[{{node PyFunc}}]]"),
    Text("a worker of a loader", "host_oom", 0, "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed."),
    Text("a bare MemoryError", "host_oom", 0, f"{_TRACE}MemoryError"),
    Text("C++", "host_oom", 0, "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted (core dumped)"),
    Text("errno", "host_oom", 0, "OSError: [Errno 12] Cannot allocate memory"),
    Text("Windows", "host_oom", 0, "ImportError: DLL load failed while importing _core: [WinError 1455] The paging file is too small for this operation to complete."),
    Text("the kernel", "host_oom", 0, "[81234.5] Out of memory: Killed process 4242 (python) total-vm:81234567kB, anon-rss:60123456kB, file-rss:0kB"),
    Text("a cgroup", "host_oom", 0, "kernel: Memory cgroup out of memory: Killed process 77 (python3)\nkernel: oom_reaper: reaped process 77 (python3)"),
    Text("Kubernetes", "host_oom", 0, "    Last State:  Terminated\n      Reason:    OOMKilled\n      Exit Code: 137"),
    Text("only 137", "host_oom", 0, "command terminated with exit code 137"),
    Text("Slurm", "host_oom", 0, "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=99.batch. Some of your processes may have been killed by the cgroup out-of-memory handler."),
    Text("old Slurm", "host_oom", 0, "slurmstepd: error: Job 99 exceeded memory limit (33559956 > 33554432), being killed\nslurmstepd: error: Exceeded job memory limit"),
    Text("joblib", "host_oom", 0, "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated. The exit codes of the workers are {SIGKILL(-9)}"),
    Text("TensorFlow's CPU allocator", "host_oom", 0, f"OOM when allocating tensor with shape[9,9] and type float on {_CPU} by allocator mklcpu"),
    Text("pinned memory", "host_oom", 0, "2020-01-02 03:04:05.6: E tensorflow/stream_executor/cuda/cuda_driver.cc:893] failed to alloc 2147483648 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n2020-01-02 03:04:05.7: W ./tensorflow/core/common_runtime/gpu/gpu_host_allocator.h:44] could not allocate pinned host memory of size: 2147483648"),
    Text("a notebook", "host_oom", 0, "Your session crashed after using all available RAM."),
    Text("PyTorch on the CPU", "host_oom", 0, "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)"),
    Text("the warning, and then the end", "host_oom", 0, "2020-01-02 03:04:05.6: W tensorflow/core/framework/cpu_allocator_impl.cc:80] Allocation of 3221225472 exceeds 10% of free system memory.\nKilled"),
    Text("YARN", "host_oom", 0, "ERROR YarnScheduler: Lost executor 4: Container killed by YARN for exceeding memory limits. 9.1 GB of 9 GB physical memory used."),
]  # fmt: skip

NOT = [
    Text("nothing", "not_oom", 2, ""),
    Text("a run that went well", "not_oom", 2, f"Epoch 1/2\n{_BAR}Epoch 2/2\n900/900 [==============================] - loss: 0.3\n"),
    Text("a warning and a run that went on", "not_oom", 2, f"{_OPTIONAL}{_BAR}"),
    Text("a warning", "not_oom", 2, _OPTIONAL),
    Text("a large allocation that was made", "not_oom", 2, "2020-01-02 03:04:05.6: W tensorflow/core/framework/cpu_allocator_impl.cc:80] Allocation of 3221225472 exceeds 10% of free system memory."),
    Text("the driver, asked for less, gave it", "not_oom", 2, f"{_SHRINKING}{_BAR}"),
    Text("the driver gave a device", "not_oom", 2, f"{_SHRINKING}I tensorflow/core/common_runtime/gpu/gpu_device.cc:1326] Created TensorFlow device ({_GPU} with 2900 MB memory) -> physical GPU"),
    Text("caught, and a smaller batch ran to its end", "not_oom", 2, f"ResourceExhaustedError: OOM when allocating tensor with shape[512,8] on {_GPU}\nout of memory at 512, trying batch size 256\nEpoch 1/1\n900/900 [====] - loss: 0.1\nTraining finished\n"),
    Text("run again with less", "not_oom", 2, f"{_TRACE}ResourceExhaustedError: OOM when allocating tensor with shape[512,8] on {_GPU}\n2024-01-02 03:04:05.6: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized\n{_BAR}"),
    Text("documentation", "not_oom", 2, "# Memory\n\nIf you see `ResourceExhaustedError: OOM when allocating tensor`, the GPU ran out of memory.\n- lower the batch size to avoid out of memory errors\nOut of memory errors are common with long sequences.\n"),
    Text("code", "not_oom", 2, "try:\n    model.fit(x)\nexcept tf.errors.ResourceExhaustedError as error:  # OOM\n    raise MemoryError('out of memory') from error\n"),
    Text("a variable's name", "not_oom", 3, f"{_TRACE}NameError: name 'memory' is not defined"),
    Text("a key", "not_oom", 3, f"{_TRACE}KeyError: 'out of memory'"),
    Text("source that mentions it", "not_oom", 3, 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    raise ValueError("expected two")  # not MemoryError: Unable to allocate\nValueError: expected two'),
    Text("a full disk", "not_oom", 3, "ResourceExhaustedError: ckpt/part-00000.tempstate812; No space left on device [Op:SaveV2]"),
    Text("a full disk within Python", "not_oom", 3, f"{_TRACE}OSError: [Errno 28] No space left on device"),
    Text("shared memory segments", "not_oom", 3, "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1f3a'"),
    Text("open files", "not_oom", 3, "tensorflow.python.framework.errors_impl.ResourceExhaustedError: data/part-7.tfrecord; Too many open files"),
    Text("a file without a reason", "not_oom", 3, "tensorflow.python.framework.errors.ResourceExhaustedError: /data/raw/train/n01/im_7.jpeg"),
    Text("a message", "not_oom", 3, "RESOURCE_EXHAUSTED: Received message larger than max (20971520 vs. 4194304)"),
    Text("a graph over two gigabytes", "not_oom", 3, "ValueError: Cannot create a tensor proto whose content is larger than 2GB."),
    Text("a quota", "not_oom", 3, "google.api_core.exceptions.ResourceExhausted: 429 Quota exceeded for quota metric"),
    Text("a kernel's shared memory", "not_oom", 3, "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 131120, available: 101376"),
    Text("thread storage", "not_oom", 3, "ImportError: /usr/lib/libgomp.so.1: cannot allocate memory in static TLS block"),
    Text("shapes", "not_oom", 3, "ValueError: Input 0 of layer dense is incompatible with the layer: expected axis -1 to have value 64"),
    Text("an index", "not_oom", 3, "InvalidArgumentError: indices[0,3] = 5000 is not in [0, 5000) [Op:ResourceGather]"),
    Text("not a number", "not_oom", 3, "Epoch 1/2\n 10/900 [>....] - ETA: 10s - loss: nan\n"),
    Text("cuBLAS without a reason", "not_oom", 3, "2021-02-03 04:05:06.7: E tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED"),
    Text("cuDNN without a reason", "not_oom", 3, "UnknownError: Failed to get convolution algorithm. This is probably because cuDNN failed to initialize [Op:Conv2D]"),
    Text("an illegal access", "not_oom", 3, "E tensorflow/stream_executor/cuda/cuda_event.cc:29] Error polling for event status: failed to query event: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered\nF tensorflow/core/common_runtime/gpu/gpu_event_mgr.cc:273] Unexpected Event status: 1\nAborted (core dumped)"),
    Text("a launch that failed after a warning", "not_oom", 3, f"{_OPTIONAL}E tensorflow/stream_executor/cuda/cuda_driver.cc:1110] could not synchronize on CUDA context: CUDA_ERROR_LAUNCH_FAILED\nF tensorflow/core/common_runtime/gpu/gpu_event_mgr.cc:203] Unexpected Event status: 1\nAborted (core dumped)"),
    Text("nothing was asked for", "not_oom", 3, "E tensorflow/core/common_runtime/bfc_allocator.cc:244] tried to allocate 0 bytes\nF tensorflow/core/common_runtime/gpu/gpu_device.cc:103] EigenAllocator for GPU ran out of memory when allocating 0. See error logs for more detailed info.\nAborted (core dumped)"),
    Text("a service without capacity", "not_oom", 3, "io.grpc.StatusRuntimeException: RESOURCE_EXHAUSTED: Unable to submit request because the service is out of capacity. Try again later."),
    Text("no device", "not_oom", 3, "RuntimeError: cudaGetDevice() failed. Status: no CUDA-capable device is detected"),
    Text("a library", "not_oom", 3, "ImportError: libcudart.so.10.0: cannot open shared object file: No such file or directory"),
    Text("Ctrl-C after a warning", "not_oom", 3, f"{_OPTIONAL}{_TRACE}KeyboardInterrupt"),
    Text(
        "an allocation refused for another reason",
        "not_oom",
        3,
        "E tensorflow/stream_executor/cuda/cuda_driver.cc:967] failed to alloc 4096 bytes on host: CUDA_ERROR_UNKNOWN",
    ),
    Text("a segmentation fault", "not_oom", 3, f"{_BAR}Segmentation fault (core dumped)"),
    Text("out of time", "not_oom", 3, "slurmstepd: error: *** JOB 99 ON n1 CANCELLED AT 2024-01-02T03:04:05 DUE TO TIME LIMIT ***\nsrun: error: n1: task 0: Killed"),
    Text("stopped, not for memory", "not_oom", 3, '"ExitCode": 137,\n"OOMKilled": false,'),
    Text("a copy that failed otherwise", "not_oom", 3, f"InternalError: Failed copying input tensor from {_CPU} to {_GPU} in order to run Add: GPU sync failed"),
    Text("evicted for its disk", "not_oom", 3, "Status: Failed\nReason: Evicted\nMessage: The node was low on resource: ephemeral-storage."),
    Text("corrupted", "not_oom", 3, "malloc(): invalid size (unsorted)\nAborted (core dumped)"),
    Text("a sentence", "not_oom", 2, "the process was not killed by anyone"),
    Text("memory left over after another failure", "not_oom", 3, f"{_SHRINKING}InvalidArgumentError: Incompatible shapes: [8,9] vs. [9]"),
]  # fmt: skip

ALL = [*DEVICE, *HOST, *NOT]
