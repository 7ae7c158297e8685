"""What a log says of a failure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

DiagnosisKind = Literal["device_oom", "host_oom", "not_oom"]


class Cause(str, Enum):
    """What it was, when it was not memory."""

    DISK = "a full disk"
    FILES = "files, too many or not to be had"
    SHARED_MEMORY = "full shared memory segments"
    MESSAGE = "a message over its limit"
    QUOTA = "a quota or capacity that is used up"
    LIMIT = "a limit of the system on threads, watches or locked pages"
    KERNEL = "one kernel's own limits"
    TIME = "a time limit"
    STOPPED = "stopped from outside"
    NUMBERS = "numbers that are not finite"
    LIBRARY = "a library that can't be loaded"
    NO_DEVICE = "no usable device"
    GPU_FAULT = "a fault on the GPU"
    GPU_LIBRARY = "a GPU library that failed"
    CRASH = "a crash in native code"
    PROGRAM = "an error in the program"

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Whether memory ran out and where, with the tensor, op and allocator as far as the log names them."""

    kind: DiagnosisKind
    failed: bool = False
    """Is there a failure at all? Always true for memory."""
    cause: Cause | None = None
    """What it was instead of memory."""
    line: str = ""
    """The line that decided."""
    line_number: int | None = None
    survived: bool = False
    """Did memory run out earlier in the log, and the run go on?"""
    held_elsewhere: bool = False
    """Did the driver itself refuse, before the model was at fault?"""
    tensor_shape: tuple[int, ...] | None = None
    dtype: str | None = None
    op: str | None = None
    layer: str | None = None
    allocator: str | None = None
    device: str | None = None
    bytes_requested: int | None = None
    in_use_bytes: int | None = None
    limit_bytes: int | None = None

    @property
    def is_memory(self) -> bool:
        return self.kind != "not_oom"

    @property
    def free_bytes(self) -> int | None:
        if self.limit_bytes is None or self.in_use_bytes is None:
            return None
        return max(0, self.limit_bytes - self.in_use_bytes)
