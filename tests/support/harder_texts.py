"""Failures that are easily misread: epilogues, retries, orders, names that mention memory, and what else runs out."""

from __future__ import annotations

from tests.support.failure_texts import Text

_GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
_TRACE = 'Traceback (most recent call last):\n  File "main.py", line 21, in <module>\n    trainer.run()\n'
_OOM = f"ResourceExhaustedError: OOM when allocating tensor with shape[48,640,640,24] and type float on {_GPU} by allocator GPU_0_bfc"
_BAR = " 40/700 [>.............................] - ETA: 2:02 - loss: 1.9021\n"
_EPOCH = "700/700 [==============================] - 61s 87ms/step - loss: 1.2044\n"
_BENIGN = "2022-03-04 05:06:07.8: W tensorflow/core/kernels/gpu_utils.cc:50] Failed to allocate memory for convolution redzone checking; skipping this check. This is benign and only means that out-of-bounds reads are not found.\n"
_DRIVER = "2021-03-04 05:06:07.8: E tensorflow/stream_executor/cuda/cuda_driver.cc:802] failed to allocate 7.20G (7730941132 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"

BELOW_A_FAILURE = [
    Text("Jenkins' last word", "device_oom", 0, f"{_TRACE}{_OOM}\nBuild step 'Execute shell' marked build as failure\nFinished: FAILURE\n"),
    Text("a status that is a failure", "device_oom", 0, f"{_OOM}\nRun finished with status: FAILED\n"),
    Text("a time stamp", "device_oom", 0, f"{_TRACE}{_OOM}\nJob finished at Sun 3 Mar 11:00:21 UTC 2024\n"),
    Text("a fit that did not", "device_oom", 0, f"{_OOM}\nthe fit did not complete\n"),
    Text("done, says the script", "host_oom", 0, "run_all.sh: line 12:  4471 Killed                  python main.py\ndone\n"),
    Text("an epilogue of Slurm", "host_oom", 0, "slurmstepd: error: Detected 3 oom-kill event(s) in StepId=7.0. Some of your processes may have been killed by the cgroup out-of-memory handler.\nFinished at: Fri Feb 2\n"),
    Text("steps that were kept in a buffer", "device_oom", 0, f"{_TRACE}{_OOM}\nTrying batch size 48\nstep 1 loss: 2.9\nstep 2 loss: 2.8\n"),
    Text("a hint that mentions steps", "device_oom", 0, f"{_OOM}\nHint: try lowering the batch size (48 now, loss: 1.2 at the last step)\n"),
    Text("an error that Python ignored", "device_oom", 0, f"{_TRACE}{_OOM}\nException ignored in: <function Pool.__del__ at 0x7f11>\n{_TRACE}TypeError: 'NoneType' object is not callable\n"),
    Text("an error of the handler", "device_oom", 0, f"{_TRACE}{_OOM}\n\nDuring handling of the above exception, another exception occurred:\n\n{_TRACE}KeyError: 'run_id'\n"),
    Text("the launcher's own traceback", "device_oom", 0, f"{_TRACE}{_OOM}\n{_TRACE}subprocess.CalledProcessError: Command '['python', 'main.py']' returned non-zero exit status 1.\n"),
    Text("another rank goes on", "device_oom", 0, f"[0]<stderr>:{_OOM}\n[1]<stdout>:{_BAR}[1]<stdout>:{_BAR}mpirun noticed that process rank 0 exited on signal 6 (Aborted).\n"),
    Text("an op that failed, a bar, the end", "device_oom", 0, f"2023-01-02 03:04:05.6: W tensorflow/core/framework/op_kernel.cc:1780] OP_REQUIRES failed at pad_op.cc:70 : RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[48,642,642,24] and type float on {_GPU} by allocator GPU_0_bfc\n{_BAR}Aborted (core dumped)\n"),
    Text("a mistake, then Jenkins", "not_oom", 3, f"{_TRACE}ValueError: Shapes (None, 3) and (None, 4) are incompatible\nFinished: FAILURE\n"),
    Text("a finder, an epoch, a mistake", "not_oom", 3, f"[finder] 96 -> {_OOM}\n[finder] 48 -> ok\nEpoch 1/1\n{_EPOCH}{_TRACE}KeyError: 'val_auc'\n"),
    Text("a warning, epochs, a mistake", "not_oom", 3, f"WARNING: {_OOM}\nEpoch 1/2\n{_EPOCH}Epoch 2/2\n{_EPOCH}{_TRACE}TypeError: can't multiply sequence by non-int\n"),
    Text("printed, and a mistake of its own later", "not_oom", 3, f"{_TRACE}{_OOM}\nEpoch 1/2\n{_EPOCH}{_TRACE}IndexError: list index out of range\n"),
    Text("caught in a traceback, and run to its end", "not_oom", 2, f"{_TRACE}{_OOM}\nretrying with a batch of 24\nEpoch 1/1\n{_EPOCH}"),
]  # fmt: skip

SAID_IN_PASSING = [
    Text("a killer that is off", "not_oom", 3, "memory_monitor_refresh_ms=0, OOM killer disabled\nValueError: momentum must not be negative\n"),
    Text("a killer that is on", "not_oom", 3, f"limits: mem 64G, OOM kill enabled\n{_TRACE}ModuleNotFoundError: No module named 'keras_cv'\n"),
    Text("a question to Docker", "not_oom", 3, "worker exited with code 1\n$ docker inspect worker --format '{{.State.OOMKilled}}'\nfalse\n"),
    Text("a watchdog at its start", "not_oom", 3, f"INFO OOM guard armed; a ResourceExhaustedError restarts the run\n{_TRACE}KeyError: 'oom_policy'\n"),
    Text("Python's log at its lowest", "not_oom", 2, f"INFO:root:on ResourceExhaustedError the OOM handler halves the batch\n2024-01-02 03:04:05,678 - app - INFO - memory limit is 4096 MB\nEpoch 1/1\n{_EPOCH}"),
    Text("a log in JSON", "not_oom", 2, '{"level": "info", "msg": "will fall back if it runs out of memory"}\n{"level":"INFO","msg":"OOM retries: 3"}\n'),
    Text("nodes of a cluster", "not_oom", 3, "srun: error: Unable to allocate resources: Requested node configuration is not available"),
    Text("a port", "not_oom", 3, "RuntimeError: Could not allocate a port between 7000 and 7099"),
    Text("a card of a service", "not_oom", 3, "ERROR: could not allocate a GPU: none of this type is free, try later"),
    Text("versions that are pinned", "not_oom", 3, "ERROR: the resolver can't continue: numpy is pinned and memory-profiler wants another"),
    Text("a value for RAM", "not_oom", 3, "ERROR: --ram: RAM is a number of GB, memory given was 'lots'"),
    Text("host memory that can't be mapped", "not_oom", 3, "RuntimeError: hipHostRegister: failed to map host memory: invalid value"),
    Text("a check that is skipped", "not_oom", 2, f"{_BENIGN}mAP 0.37\n"),
    Text("a check that is skipped, and a mistake", "not_oom", 3, f"{_BENIGN}{_TRACE}RuntimeError: no boxes\n"),
    Text("no room to spare, and a compiler that fails", "not_oom", 3, "2021-03-04 05:06:07.8: W tensorflow/core/common_runtime/bfc_allocator.cc:248] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.02GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.\n2021-03-04 05:06:09.8: F tensorflow/compiler/xla/service/gpu/nvptx_compiler.cc:490] ptxas returned an error during compilation of ptx to sass\nAborted (core dumped)\n"),
    Text("asked for too much, and scored", "not_oom", 2, f"{_DRIVER}{_DRIVER}accuracy on the test set: 0.87\n"),
    Text("pods that wait", "not_oom", 3, "Warning  FailedScheduling  9s  default-scheduler  0/4 nodes are available: 4 Insufficient memory."),
    Text("a flag of a shell", "not_oom", 2, "+ python main.py --on-oom retry --OOM 3\n"),
    Text("shared memory that is used", "not_oom", 2, "using shared memory for 4 workers\n"),
]  # fmt: skip

STOPPED = [
    Text("Ctrl-C, then the signal", "not_oom", 3, "^CGracefully stopping... (press Ctrl+C again to force)\nStopping job_trainer_1 ... done\njob_trainer_1 exited with code 137\n"),
    Text("timeout", "not_oom", 3, "timeout: sending signal TERM to command 'python'\ntimeout: sending signal KILL to command 'python'\nKilled\n"),
    Text("a watchdog", "not_oom", 3, "[dog] rank 2 is silent, sending SIGTERM\n[dog] rank 2 is still there, sending SIGKILL\nRuntimeError: rank 2 is lost\n"),
    Text("a job that a shell ended", "not_oom", 3, f"{_BAR}[2]+  Terminated              python main.py\n"),
    Text("killed first and stopped later", "host_oom", 0, "job_trainer_1 exited with code 137\n^CGracefully stopping...\n"),
    Text("a daemon that frees memory", "host_oom", 0, 'earlyoom: low memory! at or below SIGTERM limits: mem 5.00%, swap 5.00%\nearlyoom: sending SIGTERM to process 91 uid 0 "python": badness 870, VmRSS 61000 MiB\n'),
    Text("a shell that speaks Chinese", "host_oom", 0, "Epoch 1/9\nrun.sh: 第 4 行: 90210 已杀死               python main.py\n"),
    Text("a scheduler that forwards", "host_oom", 0, "[2024-01-02, 03:04:05 UTC] {local_task_job.py:208} INFO - Task exited with return code -9\n"),
]  # fmt: skip

OTHER_NAMES = [
    Text("a worker of Dask", "host_oom", 0, f"distributed.nanny - WARNING - Worker tcp://10.0.0.2:3333 exceeded 95% memory budget. Restarting...\n{_TRACE}distributed.scheduler.KilledWorker: Attempted to run task 'read-7' on 3 different workers, but all those workers died.\n"),
    Text("an iterator", "not_oom", 3, f"{_TRACE}StopIteration\n"),
    Text("a class of the user's", "not_oom", 3, f"{_TRACE}lab.errors.LossDiverged: 91.2\n"),
    Text("a class in small letters", "not_oom", 3, f"{_TRACE}socket.timeout: timed out\n"),
    Text("behind a container's name", "not_oom", 3, "web_1  | Traceback (most recent call last):\nweb_1  |   File \"a.py\", line 1, in <module>\nweb_1  |     next(it)\nweb_1  | StopIteration\n"),
    Text("the end of the data, raised", "not_oom", 3, f"2021-03-04 05:06:07.8: W tensorflow/core/framework/op_kernel.cc:1655] OP_REQUIRES failed at iterator_ops.cc:941 : Out of range: End of sequence\n{_TRACE}tensorflow.python.framework.errors_impl.OutOfRangeError: End of sequence\n"),
    Text("a script that is not there", "not_oom", 3, "python: can't open file 'oom.py': [Errno 2] No such file or directory"),
    Text("a plan of cuFFT", "device_oom", 0, f"2022-03-04 05:06:07.8: E tensorflow/stream_executor/cuda/cuda_fft.cc:434] failed to initialize batched cufft plan with customized allocator: Failed to make cuFFT batched plan. CUFFT_ALLOC_FAILED\n{_TRACE}tensorflow.python.framework.errors_impl.InternalError: Failed to create cuFFT batched plan with scratch allocator [Op:RFFT]\n"),
    Text("watches", "not_oom", 3, f"{_TRACE}OSError: [Errno 28] inotify watch limit reached\n"),
    Text("locked pages", "not_oom", 3, "The fabric failed to start while trying to lock memory: the memlock limit is too low.\n  Errno:         Cannot allocate memory\nSegmentation fault (core dumped)\n"),
    Text("a TPU kernel's own memory", "not_oom", 3, "INTERNAL: Mosaic failed to compile TPU kernel: Ran out of memory in memory space vmem. Used 33.0M of 16.0M vmem."),
]  # fmt: skip

# From what is known of runtimes and systems, after the rules stood.
FURTHER = [
    Text("ROCm's allocator", "device_oom", 0, "2023-06-07 08:09:10.1: E tensorflow/compiler/xla/stream_executor/rocm/rocm_driver.cc:619] failed to allocate 15.9G (17072914432 bytes) from device: hipError_t(2)\n2023-06-07 08:09:10.2: W tensorflow/tsl/framework/bfc_allocator.cc:485] Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.00GiB (rounded to 4294967296)requested by op lstm/MatMul\nAborted (core dumped)\n"),
    Text("HIP in words", "device_oom", 0, f"{_TRACE}RuntimeError: HIP out of memory. Tried to allocate 768.00 MiB (GPU 1; 15.98 GiB total capacity; 14.9 GiB already allocated)\n"),
    Text("MIOpen", "device_oom", 0, "MIOpen Error: miopenStatusAllocFailed\nMIOPEN_STATUS_ALLOC_FAILED while preparing the workspace\n"),
    Text("a TPU program that is too large", "device_oom", 0, 'RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 19.01G of 15.48G hbm. Exceeded hbm capacity by 3.53G.\n  1. Size: 3.00G\n     Operator: op_name="decoder/attention/MatMul"\n     Shape: bf16[64,16,1024,1536]{3,2,1,0:T(8,128)(2,1)}\n'),
    Text("a TPU at run time", "device_oom", 0, "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to allocate 2.25G. That was not possible. There are 1.10G free.; (0x0x0_HBM0)"),
    Text("XLA's autotuner for want of room", "device_oom", 0, f"{_TRACE}tensorflow.python.framework.errors_impl.ResourceExhaustedError: Out of memory while trying to allocate 8589934592 bytes. [Op:__inference_one_step_77]\n"),
    Text("cuSolver's buffer", "device_oom", 0, f"{_TRACE}tensorflow.python.framework.errors_impl.InternalError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED [Op:Qr]\n"),
    Text("cuBLAS' handle", "device_oom", 0, f"2020-03-04 05:06:07.8: E tensorflow/stream_executor/cuda/cuda_blas.cc:238] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\n{_TRACE}tensorflow.python.framework.errors_impl.InternalError: Blas GEMM launch failed : a.shape=(32, 8) [Op:MatMul]\n"),
    Text("a context that no one could make", "device_oom", 0, "2020-03-04 05:06:07.8: E tensorflow/core/common_runtime/session.cc:75] Failed to create session: Internal: failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 8369799168\n"),
    Text("NCCL", "device_oom", 0, f"{_TRACE}tensorflow.python.framework.errors_impl.InternalError: NCCL: unhandled cuda error. Cuda failure 'out of memory' [Op:NcclAllReduce]\n"),
    Text("DirectML", "device_oom", 0, "2022-03-04 05:06:07.8: F tensorflow/c/logging.cc:43] HRESULT failed with 0x8007000e: device->CreatePlacedResource(...)\nAborted\n"),
    Text("an image of TensorRT", "device_oom", 0, "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory (no further information)\n"),
    Text("a forwarded traceback", "device_oom", 0, f"[2024-01-02, 03:04:05 UTC] {{subprocess.py:93}} INFO - {_OOM}\n"),
    Text("behind JSON", "device_oom", 0, f'{{"log":"{_OOM}\\n","stream":"stderr"}}\n'),
    Text("lost in colours", "device_oom", 0, f"\x1b[31mResource\x1b[1mExhausted\x1b[0mError: O\x1b[33mOM when allo\x1b[0mcating tensor with shape[9,9] on {_GPU}\n"),
    Text("a container in Kubernetes' words", "host_oom", 0, "Containers:\n  main:\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"),
    Text("LSF", "host_oom", 0, "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 143.\n"),
    Text("PBS", "host_oom", 0, "=>> PBS: job killed: mem 67188812kb exceeded limit 67108864kb\n"),
    Text("systemd's own", "host_oom", 0, "systemd-oomd[611]: Killed /user.slice/user-1000.slice due to memory pressure for /user.slice being 83.00%\n"),
    Text("Ray", "host_oom", 0, "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"),
    Text("a fork", "host_oom", 0, f"{_TRACE}OSError: [Errno 12] Cannot allocate memory\n"),
    Text("HDF5 and NumPy", "host_oom", 0, f"{_TRACE}numpy.core._exceptions.MemoryError: Unable to allocate 23.8 GiB for an array with shape (64000, 100000) and data type float32\n"),
    Text("tcmalloc, then the end", "host_oom", 0, "tcmalloc: large alloc 17179869184 bytes == 0x55d1 @\nKilled\n"),
    Text("a mistake after which a launcher kills the rest", "not_oom", 3, f"{_TRACE}KeyError: 'image'\nlauncher: rank 1 exited with code -9\n"),
    Text("a quota for a pod", "not_oom", 3, 'Error from server (Forbidden): pods "t" is forbidden: exceeded quota: gpu, requested: limits.memory=64Gi'),
    Text("a bucket", "not_oom", 3, "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Error executing an HTTP request: HTTP response code 429 with body 'rateLimitExceeded' when reading gs://b/o"),
    Text("a Unix limit on file size", "not_oom", 3, f"{_TRACE}OSError: [Errno 27] File too large\n"),
    Text("two libraries of one", "not_oom", 3, "OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized.\n"),
    Text("a card that fell off", "not_oom", 3, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\nCUDA_ERROR_UNKNOWN: unknown error\n"),
    Text("memory that was read wrongly", "not_oom", 3, f"{_TRACE}tensorflow.python.framework.errors_impl.DataLossError: truncated record at 81723 [Op:IteratorGetNext]\n"),
    Text("growth that comes late", "not_oom", 3, f"{_TRACE}RuntimeError: Physical devices cannot be modified after being initialized: memory growth\n"),
    Text("an overflow of sizes", "not_oom", 3, f"{_TRACE}tensorflow.python.framework.errors_impl.InvalidArgumentError: Shape [4611686018427387904,4] would have more than 2**63 - 1 elements\n"),
    Text("a leak that a tool found", "not_oom", 2, f"W0101 leak_check.cc:10] possible memory leak of 12 MB\n{_EPOCH}"),
    Text("a metric that is named so", "not_oom", 2, f"{_EPOCH}oom_rate: 0.00 - memory_error: 0.11\n"),
    Text("threads", "not_oom", 3, "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable\nAborted (core dumped)\n"),
    Text("segments of a loader", "not_oom", 3, "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\nBus error (core dumped)\n"),
]  # fmt: skip

_E = "2020-08-09 10:11:12.1: E tensorflow/stream_executor"
_TF = f"{_TRACE}tensorflow.python.framework.errors_impl."

# The runtime logged why, and what was raised after it does not say.
LOGGED_BEFORE = [
    Text("a handle of cuBLAS, and no support", "device_oom", 0, f"{_E}/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\n2020-08-09 10:11:12.2: W tensorflow/core/framework/op_kernel.cc:1767] OP_REQUIRES failed at matmul_op.cc:481 : Internal: Attempting to perform BLAS operation using StreamExecutor without BLAS support\n{_TF}InternalError: Attempting to perform BLAS operation using StreamExecutor without BLAS support [Op:MatMul]\n"),
    Text("a context, and no session", "device_oom", 0, f"2017-08-09 10:11:12.1: E tensorflow/core/common_runtime/direct_session.cc:170] Internal: failed initializing StreamExecutor for CUDA device ordinal 1: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY; total memory reported: 6373572608\n{_TF}InternalError: Failed to create session.\n"),
    Text("scratch space of an RNN", "device_oom", 0, f"{_E}/dnn.cc:613] OOM when allocating tensor with shape[805306368] and type uint8 on {_GPU} by allocator GPU_0_bfc\n{_TF}InternalError: Failed to call ThenRnnForward with model config: [rnn_mode, rnn_input_mode, rnn_direction_mode]: 2, 0, 0\n\t [[{{{{node CudnnRNN}}}}]]\n"),
    Text("a code of cuDNN, and an RNN", "device_oom", 0, f"{_E}/dnn.cc:613] CUDNN_STATUS_ALLOC_FAILED\nin tensorflow/stream_executor/cuda/cuda_dnn.cc(1424): 'cudnnRNNBackwardData(...)'\n{_TF}InternalError: Failed to call ThenRnnBackward with model config: [rnn_mode]: 2\n"),
    Text("a code of cuSolver, and its call", "device_oom", 0, f"2021-08-09 10:11:12.1: E tensorflow/core/util/cuda_solvers.cc:87] CUSOLVER_STATUS_ALLOC_FAILED\n{_TF}InternalError: cuSolverDN call failed [Op:SelfAdjointEigV2]\n"),
    Text("TensorRT's logger, and no engine", "device_oom", 0, f"2022-08-09 10:11:12.1: E tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:42] DefaultLogger Requested amount of GPU memory (2818572288 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.\n{_TF}InternalError: Failed to build TensorRT engine\n"),
    Text("words of a library that no one knows yet", "device_oom", 0, f"2023-08-09 10:11:12.1: E tensorflow/core/kernels/new_op.cc:42] out of memory: could not allocate 1073741824 bytes of scratch on GPU 0\n{_TF}UnknownError: The operation could not be started\n"),
    Text("a full disk of its own", "not_oom", 3, f"{_E}/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\n{_TF}InternalError: Could not write to the internal temporary file.\n"),
    Text("a mistake in a function of the user's", "not_oom", 3, f"{_E}/dnn.cc:613] CUDNN_STATUS_ALLOC_FAILED\n{_TF}UnknownError: KeyError: 'mask'\n"),
    Text("a session that is gone", "not_oom", 3, f"{_E}/dnn.cc:613] CUDNN_STATUS_ALLOC_FAILED\n{_TF}AbortedError: Session 90210 is not found.\n"),
    Text("a warning of an autotuner, and another error", "not_oom", 3, f"2024-08-09 10:11:12.1: W external/local_xla/xla/service/gpu/conv_algorithm_picker.cc:81] Failed to allocate 1.50GiB for autotuning\n{_TF}InternalError: The op could not be lowered\n"),
    Text("logged, outlived, and another error", "not_oom", 3, f"{_E}/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\nEpoch 1/2\n{_EPOCH}{_TF}InternalError: Failed to create session.\n"),
    Text("no support, and nothing logged", "not_oom", 3, f"{_TF}InternalError: Attempting to perform BLAS operation using StreamExecutor without BLAS support [Op:MatMul]\n"),
    Text("a warning that does not matter, and an RNN", "not_oom", 3, f"{_BENIGN}{_TF}InternalError: Failed to call ThenRnnForward with model config: [rnn_mode]: 2\n"),
]  # fmt: skip

# Errors whose type misleads, and words of schedulers, clouds and systems.
TOLD_OTHERWISE = [
    Text("a status that is raised as a mistake", "device_oom", 0, "ValueError: RESOURCE_EXHAUSTED: Failed to allocate request for 6.25GiB (6710886400B) on device ordinal 2"),
    Text("a buffer for data, raised as a mistake", "device_oom", 0, f"{_TRACE}ValueError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 3.25G. That was not possible. There are 2.11G free.; (1x0x0_HBM0)\n"),
    Text("a message, raised as a mistake", "not_oom", 3, "ValueError: RESOURCE_EXHAUSTED: Received message larger than max (9437184 vs. 4194304)"),
    Text("a constant of XLA", "device_oom", 0, "RuntimeError: INTERNAL: Failed to allocate 671088640 bytes for new constant"),
    Text("a buffer of MIOpen", "device_oom", 0, "MIOpen(HIP): Error [Allocate] Memory not available to allocate buffer: 3221225472\nAborted (core dumped)\n"),
    Text("a dimension that can't be", "not_oom", 3, f"{_TRACE}tensorflow.python.framework.errors_impl.InvalidArgumentError: Cannot allocate a tensor with negative dimension: [-7,3]\n"),
    Text("a buffer that can't be", "not_oom", 3, "InvalidArgumentError: failed to allocate buffer: dimension must be >= 0 [Op:TensorListReserve]"),
    Text("a service that is overrun", "not_oom", 3, 'grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.RESOURCE_EXHAUSTED\n\tdetails = "Bandwidth exhausted or memory limit exceeded"\n>\n'),
    Text("Slurm's summary", "host_oom", 0, "Job ID: 77\nState: OUT_OF_MEMORY (exit code 0)\nMemory Utilized: 63.91 GB\n"),
    Text("Slurm's table, with bars", "host_oom", 0, "JobID|State|ExitCode\n77|OUT_OF_MEMORY|0:125\n77.batch|OUT_OF_MEMORY|0:125\n"),
    Text("Slurm's table, cut to its width", "host_oom", 0, "JobID           State ExitCode\n------------ ---------- --------\n77           OUT_OF_ME+    0:125\n"),
    Text("Slurm's mail", "host_oom", 0, "Slurm Job_id=77 Name=fit Failed, Run time 01:02:03, OUT_OF_MEMORY\n"),
    Text("Slurm's record", "host_oom", 0, "   JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null)\n"),
    Text("Slurm's states, listed", "not_oom", 2, "Final states: COMPLETED, FAILED, TIMEOUT, OUT_OF_MEMORY\nThe state OUT_OF_MEMORY is set by the accounting plugin.\n|OUT_OF_MEMORY|a job that needed more|\nretry_on_state: OUT_OF_MEMORY\n0 jobs are in state OUT_OF_MEMORY\n"),
    Text("a question to Slurm", "not_oom", 2, "sacct --state OUT_OF_MEMORY --starttime now-1day\n"),
    Text("a guess about a signal", "host_oom", 0, "The Python process exited with exit code 137 (SIGKILL: Killed). It may have been caused by an OOM error."),
    Text("macOS", "host_oom", 0, "kernel: memorystatus: killing_top_process pid 90210 [python3.11] (vm-compressor-space-shortage) 0 - memorystatus_available_pages: 8191\n"),
    Text("a container that failed", "not_oom", 3, "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    1\n"),
    Text("a container that came to its end", "not_oom", 2, "    Last State:     Terminated\n      Reason:       Completed\n      Exit Code:    0\n"),
    Text("a container that failed, in JSON", "not_oom", 3, '{"lastState":{"terminated":{"exitCode":2,"reason":"Error"}}}\n'),
    Text("a container that was killed, in JSON", "host_oom", 0, '{"state": {"exitCode":  137}}\n'),
    Text("a replica that failed", "not_oom", 3, "The replica worker 3 exited with a non-zero status of 1.\n"),
    Text("a cloud without machines", "not_oom", 3, "InsufficientInstanceCapacity: there are no p4d.24xlarge in the zone you asked for\n"),
    Text("a cloud without TPUs", "not_oom", 3, 'There is no more capacity in the zone "europe-west4-b"; you can try another zone. RESOURCE_EXHAUSTED\n'),
    Text("tests that are about it", "not_oom", 2, "tests/test_memory.py::test_resource_exhausted_is_caught PASSED\ntests/test_memory.py::TestOOM::test_OutOfMemoryError SKIPPED\ncalled handle_resource_exhausted twice\n"),
]  # fmt: skip

# Compilers, other accelerators, Windows, WSL and clusters.
ELSEWHERE = [
    Text("Windows' code for no memory", "host_oom", 0, "Epoch 1/10\n  13/1250 [..............................] - ETA: 9:11 - loss: 0.6931\r\n\r\nProcess finished with exit code -1073741801 (0xC0000017)\r\n"),
    Text("Windows' code for a library", "not_oom", 3, "Process finished with exit code -1073741515 (0xC0000135)\n"),
    Text("an assembler of kernels", "host_oom", 0, f"2026-02-03 10:11:12.1: E external/local_xla/xla/service/gpu/nvptx_compiler.cc:795] ptxas fatal   : Memory allocation failure\n{_TRACE}jaxlib.xla_extension.XlaRuntimeError: INTERNAL: ptxas exited with non-zero error code 65280, output: ptxas fatal   : Memory allocation failure\n"),
    Text("a compiler of kernels", "host_oom", 0, "LLVM ERROR: out of memory\nAllocation failed\nStack dump without symbol names\nAborted (core dumped)\n"),
    Text("a replica of a cloud", "host_oom", 0, "The replica workerpool0-0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL).\n"),
    Text("a queue of ROCm", "device_oom", 0, ":0:rocdevice.cpp            :2881: 812934 us: [pid:411 tid:0x7f1] Callback: Queue 0x7f00 aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Code: 0x1008 Available Free mem : 0 MB\nAborted (core dumped)\n"),
    Text("a queue of ROCm, after the driver", "device_oom", 0, "2026-03-01 08:00:01.2: E external/local_xla/xla/stream_executor/rocm/rocm_driver.cc:1012] failed to allocate 1.50GiB (1610612736 bytes) from device: HIP_ERROR_OutOfMemory\n:0:rocdevice.cpp :2881: Callback: Queue 0x7f00 aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Code: 0x1008\n"),
    Text("a queue of ROCm, and nothing else", "not_oom", 3, "Callback: Queue 0x7f00 aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Available Free mem : 30214 MB\nAborted (core dumped)\n"),
    Text("a core of Neuron", "device_oom", 0, f"{_TRACE}RuntimeError: NRT_RESOURCE: nrt_tensor_allocate status=4: Failed to allocate 2147483648 bytes (usage: tensors) on ND 0:NC 1\n"),
    Text("a socket of NCCL", "not_oom", 3, f"{_TRACE}tensorflow.python.framework.errors_impl.InternalError: NCCL: unhandled system error. ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nsocketStartConnect: Connect to 10.0.0.4<41213> failed\n"),
    Text("a probe of Kubernetes", "not_oom", 3, "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    137\nEvents:\n  Warning  Unhealthy  kubelet  Liveness probe failed: HTTP probe failed with statuscode: 500\n  Normal   Killing    kubelet  Container trainer failed liveness probe, will be restarted\n"),
    Text("a probe of Kubernetes, and memory", "host_oom", 0, "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\nEvents:\n  Normal   Killing    kubelet  Container trainer failed liveness probe, will be restarted\n"),
    Text("a slice of a card that is not there", "not_oom", 3, f"MIG 1g.5gb device 0: memory 4864 MiB total, 4864 MiB free\n{_TRACE}RuntimeError: expected a GPU, got []\n"),
    Text("WSL", "not_oom", 3, f"{_BAR}Catastrophic failure\nError code: Wsl/Service/E_UNEXPECTED\n"),
    Text("Keras on JAX", "not_oom", 3, f"W external/xla/xla/service/gpu/compiler.cc:10] using 42% of device memory\n{_TRACE}jaxlib.xla_extension.XlaRuntimeError: INTERNAL: cuDNN launch failure: CUDNN_STATUS_MAPPING_ERROR\n"),
    Text("a loader that could not fork", "host_oom", 0, f"Exception in thread Thread-4:\n{_TRACE}OSError: [Errno 12] Cannot allocate memory\n"),
]  # fmt: skip

HARDER = [
    *BELOW_A_FAILURE,
    *SAID_IN_PASSING,
    *STOPPED,
    *OTHER_NAMES,
    *FURTHER,
    *LOGGED_BEFORE,
    *TOLD_OTHERWISE,
    *ELSEWHERE,
]
