"""Whose memory a line speaks of: the accelerator's or the host's."""

from __future__ import annotations

import re

from oomtune.diagnosis import frames
from oomtune.diagnosis.result import DiagnosisKind

# A status or an exception's type, and not a part of a name: `test_resource_exhausted_error`.
STATUS = re.compile(r"(?<!(?-i:[a-z])_)resource[ _]?exhausted(?!_(?-i:[a-z]))", re.I)
# Vendors name their codes alike: CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation, MIOPEN_STATUS_ALLOC_FAILED.
CODE = re.compile(
    r"\b(?:cu|hip|mi|roc|nccl|cl_|vk_|ze_|ur_|pi_|acl)\w*?(?:out_?of_?(?:device_?|host_?)?memory|alloc_?failed"
    r"|memory_?allocation|allocation_failure)|hiperror_t\(1002\)|insufficient memory \(0*8\b|0x8007000e",
    re.I,
)
# Only the host's memory runs out in these words.
HOST_REFUSED = re.compile(
    r"std::bad_alloc|unable to allocate [\d.]+ ?\w+ for an array|cannot allocate memory|\[errno 12\]|\benomem\b"
    r"|winerror (?:1455|8)\b|paging file is too small|defaultcpuallocator: (?:can|not)|java heap space"
    r"|heap out of memory|malloc of size|all available ram|out_of_host_memory",
    re.I,
)
# These name it and say nothing of whether it ran out.
_HOST_WORDS = re.compile(r"(?:system|physical|host|cpu|main) memory|\bRAM\b|pinned|bytes on host|defaultcpualloc", re.I)
_ON_HOST = re.compile(r"bytes on host|pinned host|out_of_host", re.I)
_HOST_PLACE = re.compile(r"device:CPU|/cpu:\d|allocator \(?(?:\w*host\w*|\w*cpu\w*)|\(mklcpu\)", re.I)
# An accelerator, or the budgeted allocator that makes a CPU stand in for one: its limit is the device's.
_DEVICE_PLACE = re.compile(r"bfc_cpu_allocator|device:(?!CPU)\w+:\d|/gpu:\d|\bhbm\b|allocator \(?gpu_\d+_bfc", re.I)
# Tools that a compiler of kernels starts run on the host, whatever they compile for.
_TOOL = re.compile(
    r"\b(?:ptxas|nvlink|fatbinary|cicc|ld\.lld|lld|cc1plus) (?:fatal|error|warning)\b|\bLLVM ERROR\b", re.I
)
_COPIED_TO = re.compile(r"copying \w+ tensor from \S+ to \S*?(?:device:)?(cpu|gpu|\w+):\d", re.I)
_ACCELERATOR = re.compile(
    r"\b(?:cuda|gpu|hip|rocm|xpu|mps|npu|tpu|dml|cudnn|cublas|vram|trt|tensorrt|hsa_status|nrt_|neuron)\w*|_gpu"
    r"|device ordinal",
    re.I,
)
# A process that was ended from outside says no more; others guess why.
_BY_SIGNAL = re.compile(r"\bSIGKILL\b|\b(?:code|status)(?: of)?:? ?(?:137|-9)\b", re.I)
_MEMORY_ERROR = re.compile(r"MemoryError")

# The first that matches decides: a place that is named, then a vendor's code, then words for the host's memory.
_TELLS: tuple[tuple[re.Pattern[str], DiagnosisKind], ...] = (
    (_TOOL, "host_oom"),
    (_DEVICE_PLACE, "device_oom"),
    (_HOST_PLACE, "host_oom"),
    (_ON_HOST, "host_oom"),
    (CODE, "device_oom"),
    (HOST_REFUSED, "host_oom"),
    (_HOST_WORDS, "host_oom"),
    (_ACCELERATOR, "device_oom"),
    (_BY_SIGNAL, "host_oom"),
    (_MEMORY_ERROR, "host_oom"),
    (STATUS, "device_oom"),
)


def place(text: str) -> DiagnosisKind:
    """TensorFlow's own words mean the device unless they name the host; anyone else's mean the host."""
    copied = _COPIED_TO.search(text)
    if copied:
        return "host_oom" if copied[1].lower() == "cpu" else "device_oom"
    otherwise: DiagnosisKind = "device_oom" if frames.is_tensorflow(text) else "host_oom"
    return next((kind for pattern, kind in _TELLS if pattern.search(text)), otherwise)
