"""Is this text a failure for want of memory? Read by structure: a status, an allocator, a device, a cause.

Keywords alone mislead: TensorFlow logs allocations that failed and did not matter, and the status RESOURCE_EXHAUSTED
also stands for full disks, quotas and messages over a size limit. So each line is judged by what it says was exhausted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

DiagnosisKind = Literal["device_oom", "host_oom", "not_oom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What a text says of a failure: whether memory ran out and where, and the tensor and op if it names them."""

    kind: DiagnosisKind
    line: str = ""
    tensor_shape: tuple[int, ...] | None = None
    dtype: str | None = None
    op: str | None = None
    allocator: str | None = None
    device: str | None = None
    bytes_requested: int | None = None


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OPTIONAL = re.compile(r"caller indicates that this is not a failure", re.I)
_STATUS = re.compile(r"resource[ _]?exhausted", re.I)
# What a RESOURCE_EXHAUSTED names when it is not memory: files, disks, quotas, messages.
_OTHER_RESOURCE = re.compile(
    r"no space left|too many open files|disk quota|quota exceeded|larger than max|\.tempstate|message length"
    r"|allocate 0 bytes|rate limit|events\.out\.tfevents",
    re.I,
)
_TENSOR = re.compile(
    r"allocating tensor (?:with|of) shape\s*\[(?P<shape>[\d,\s]*)\](?: and type (?P<dtype>\w+))?"
    r"(?: on (?P<device>\S+))?(?: by allocator (?P<allocator>\S+))?",
    re.I,
)
_REFUSED = re.compile(
    r"failed to allocate memory|out of memory (?:while )?trying to allocate|out of memory allocating"
    r"|attempting to (?:reserve|allocate) [\d.]+\s*[KMG]?i?B?|ran out of memory in memory space"
    r"|dst tensor is not initialized|out of memory in memory space|exceeded hbm capacity",
    re.I,
)
_RAN_OUT = re.compile(
    r"allocator \((?P<allocator>[^)]+)\) ran out of memory trying to allocate (?P<size>[\d.]+\w+)", re.I
)
_DRIVER = re.compile(
    r"CU(?:DA_ERROR|BLAS_STATUS|DNN_STATUS|SOLVER_STATUS|FFT)_(?:OUT_OF_MEMORY|ALLOC_FAILED)"
    r"|hip_?error_?(?:t\(1002\)|OutOfMemory|MemoryAllocation)|MIOPEN_STATUS_ALLOC_FAILED"
    r"|cuda(?:_error)?[^\n]{0,40}out of memory|insufficient memory \(0*8",
    re.I,
)
# The driver first asks for nearly all of a card and then for less and less: one such line alone is no failure.
_SHRINKING = re.compile(r"failed to allocate [\d.]+\w* (?:\(\d+ bytes\) )?from device", re.I)
_HOST = re.compile(
    r"std::bad_alloc|\bMemoryError\b|unable to allocate [\d.]+ ?\w+ for an array|cannot allocate memory"
    r"|out of memory: killed process|oom-kill|oom_reaper|\bkilled\s*$|[\d\])]killed\s*$|defaultcpuallocator"
    r"|failed to allocate host memory|exit(?:ed)? (?:with )?code 137|oomkilled",
    re.I,
)
_HOST_PLACE = re.compile(r"device:CPU|allocator (?:cpu|mklcpu|cpu_pool)\b|\(cpu\)|\(mklcpu\)", re.I)
# An accelerator, or the budgeted allocator that makes a CPU stand in for one: its limit is the device's.
_DEVICE_PLACE = re.compile(r"bfc_cpu_allocator|device:(?:GPU|TPU|DML|XLA_GPU)", re.I)
_OP = re.compile(
    r"requested by op (?P<by>[\w./]+)|\{\{node (?P<node>[^}]+)\}\}|\[Op:(?P<eager>[\w.]+)\]"
    r"|\[\[node:? (?P<old>[\w./]+)",
    re.I,
)
_SIZE = re.compile(
    r"trying to allocate (?P<size>[\d.]+) ?(?P<unit>[KMGT]?i?B|bytes)?|\((?:rounded to )?(?P<bytes>\d+)(?: bytes)?\)",
    re.I,
)
_FACTORS = {"": 1, "b": 1, "bytes": 1, "kib": 2**10, "kb": 10**3, "mib": 2**20, "mb": 10**6, "gib": 2**30, "gb": 10**9}


def classify(text: str) -> Diagnosis:
    """The diagnosis of the whole text, with the facts of the line that decided it."""
    lines = [_ANSI.sub("", line).strip() for line in re.split(r"[\r\n]+", text)]
    found = sorted(_evidence(lines), key=lambda item: -item[0])
    if not found:
        return Diagnosis(kind="not_oom")
    _, kind, line = found[0]
    return _with_facts(kind, line, lines)


def _evidence(lines: list[str]) -> Iterator[tuple[int, DiagnosisKind, str]]:
    """Each line that speaks of memory running out: how surely, where, and the line."""
    shrinking = [line for line in lines if _SHRINKING.search(line)]
    for line in lines:
        if not line or _OPTIONAL.search(line) or (_STATUS.search(line) and _OTHER_RESOURCE.search(line)):
            continue
        if _HOST.search(line):
            # A numpy error wrapped in a TensorFlow status is still the host's memory.
            yield (4 if _STATUS.search(line) else 2), "host_oom", line
        elif (tensor := _TENSOR.search(line)) or _REFUSED.search(line):
            yield (5 if tensor else 3), _place(line), line
        elif _RAN_OUT.search(line):
            yield 1, _place(line), line
        elif _DRIVER.search(line) and (line not in shrinking or len(shrinking) > 1):
            yield 3, "device_oom", line


def _place(line: str) -> DiagnosisKind:
    on_host = _HOST_PLACE.search(line) and not _DEVICE_PLACE.search(line)
    return "host_oom" if on_host else "device_oom"


def _with_facts(kind: DiagnosisKind, line: str, lines: list[str]) -> Diagnosis:
    tensor = _TENSOR.search(line)
    ran_out = next((match for other in lines if (match := _RAN_OUT.search(other))), None)
    op = next((match for other in (line, *lines) if (match := _OP.search(other))), None)
    shape = tuple(int(size) for size in tensor["shape"].split(",") if size.strip()) if tensor else None
    return Diagnosis(
        kind=kind,
        line=line,
        tensor_shape=shape,
        dtype=tensor["dtype"] if tensor else None,
        op=next(filter(None, op.groups()), None) if op else None,
        allocator=(tensor["allocator"] if tensor else None) or (ran_out["allocator"] if ran_out else None),
        device=tensor["device"] if tensor else None,
        bytes_requested=_bytes_requested(lines),
    )


def _bytes_requested(lines: list[str]) -> int | None:
    for line in lines:
        match = _SIZE.search(line) if "allocate" in line else None
        if match is None:
            continue
        if match["bytes"]:
            return int(match["bytes"])
        return int(float(match["size"]) * _FACTORS.get((match["unit"] or "").lower(), 1))
    return None
