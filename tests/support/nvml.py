"""A stand-in for pynvml."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

GIB = 1024**3


class StandInNvml:
    """The part of pynvml that we use, for one card with another process on it."""

    class NVMLError(Exception): ...

    def __init__(self, *, driver: bool = True, processes_allowed: bool = True) -> None:
        self.driver = driver
        self.processes_allowed = processes_allowed
        self.shut_down = False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut_down = True

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"550.54.15"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "Tesla T4"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=15 * GIB, free=14 * GIB, used=GIB)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:3B:00.0")

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        if not self.processes_allowed:
            raise self.NVMLError("Insufficient Permissions")
        return [SimpleNamespace(pid=77, usedGpuMemory=GIB)]

    def nvmlSystemGetProcessName(self, pid: int) -> bytes:  # noqa: N802
        return b"/usr/bin/python3"
