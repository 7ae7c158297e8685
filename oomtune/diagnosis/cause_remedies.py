"""What to do when it was not memory, by what it was instead."""

from __future__ import annotations

from collections.abc import Iterator

from oomtune.diagnosis.remedy import Remedy
from oomtune.diagnosis.result import Cause, Diagnosis

_INSTEAD = {
    Cause.DISK: ("free space where checkpoints and logs are written, and keep fewer of them", "df -h . /tmp"),
    Cause.FILES: ("close files, or allow more of them", "ulimit -n 65536"),
    Cause.SHARED_MEMORY: ("the shared memory segments are full: give the container more, or use fewer workers",
                          "docker run --shm-size=8g"),
    Cause.MESSAGE: ("a message or a graph is too long: raise the limit, and keep data out of the graph",
                    'grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])'),
    Cause.QUOTA: ("a quota or a service's capacity is used up: ask for more, or less often, or later", ""),
    Cause.LIMIT: ("the system allows no more threads, file watches or locked pages: raise it, or use fewer workers",
                  "ulimit -a; sysctl fs.inotify.max_user_watches kernel.threads-max"),
    Cause.KERNEL: ("one kernel wants more than the chip has for one: other tile or block sizes, or without XLA",
                   "model.compile(..., jit_compile=False)"),
    Cause.TIME: ("the scheduler ended it: ask for more time, and go on from a checkpoint", ""),
    Cause.STOPPED: ("it was stopped from outside; nothing in the log says that memory was short", ""),
    Cause.NUMBERS: ("the loss is not finite: a lower learning rate, clipped gradients, bfloat16 instead of float16",
                    "keras.optimizers.Adam(1e-4, clipnorm=1.0)"),
    Cause.LIBRARY: ("a library is missing or of another version: install TensorFlow with its own CUDA",
                    'pip install "tensorflow[and-cuda]"'),
    Cause.NO_DEVICE: ("no usable GPU: see what the driver and TensorFlow see", "oomtune doctor"),
    Cause.GPU_FAULT: ("a kernel read or wrote where it may not: a bug or broken hardware, found sooner with",
                      "CUDA_LAUNCH_BLOCKING=1 python train.py"),
    Cause.GPU_LIBRARY: ("cuDNN or cuBLAS could not start or run: look for a version that does not match",
                        "oomtune doctor"),
    Cause.CRASH: ("native code crashed: see where in Python it was", "python -X faulthandler train.py"),
    Cause.PROGRAM: ("read the error above; memory is not what it is about", ""),
}  # fmt: skip
# Libraries that are loaded early find room for their threads' storage.
_STATIC_STORAGE = Remedy(
    what="too many libraries were loaded before this one: load it first",
    code="LD_PRELOAD=/path/of/the/library.so python train.py",
)
# The same words are seen when the card is nearly full.
_MAYBE_FULL = Remedy(
    what="if versions match, the card may have been full when it started",
    code='tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)',
)


def not_memory(diagnosis: Diagnosis) -> Iterator[Remedy]:
    if diagnosis.cause is None:
        return
    if "static tls" in diagnosis.line.lower():
        yield _STATIC_STORAGE
        return
    what, code = _INSTEAD[diagnosis.cause]
    yield Remedy(what=what, code=code)
    if diagnosis.cause is Cause.GPU_LIBRARY:
        yield _MAYBE_FULL
