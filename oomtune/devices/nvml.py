"""What NVIDIA's management library says of the cards: names, memory, and who else is on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A process that has memory on a card."""

    pid: int
    name: str
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlCard:
    name: str
    total_bytes: int
    free_bytes: int
    driver: str
    tenants: tuple[Tenant, ...]
    bus_id: str = ""
    """Where it is plugged in, as TensorFlow writes it; empty where NVML does not say."""


def nvml_cards(library: Any = None) -> list[NvmlCard]:
    """Every card that NVML lists; none where there is no driver. `library` stands in for pynvml in tests."""
    if library is None:
        import pynvml

        library = pynvml
    try:
        library.nvmlInit()
    except library.NVMLError:
        return []
    try:
        driver = _text(library.nvmlSystemGetDriverVersion())
        handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
        found = [_card(library, handle, driver) for handle in handles]
        return [card for card in found if card is not None]
    except library.NVMLError:
        return []
    finally:
        library.nvmlShutdown()


def _card(library: Any, handle: Any, driver: str) -> NvmlCard | None:
    try:
        memory = library.nvmlDeviceGetMemoryInfo(handle)
    except library.NVMLError:
        return None  # a card that is lost, or shares its memory with the host
    return NvmlCard(
        name=_text(library.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        driver=driver,
        tenants=_tenants(library, handle),
        bus_id=_bus_id(library, handle),
    )


def _bus_id(library: Any, handle: Any) -> str:
    try:
        # 00000000:3B:00.0 here is 0000:3b:00.0 there.
        return _text(library.nvmlDeviceGetPciInfo(handle).busId).lower()[-12:]
    except library.NVMLError:
        return ""


def _tenants(library: Any, handle: Any) -> tuple[Tenant, ...]:
    try:
        processes = library.nvmlDeviceGetComputeRunningProcesses(handle)
    except library.NVMLError:
        return ()  # some drivers keep this to the administrator
    return tuple(
        Tenant(pid=process.pid, name=_process_name(library, process.pid), used_bytes=process.usedGpuMemory)
        for process in processes
    )


def _process_name(library: Any, pid: int) -> str:
    try:
        return _text(library.nvmlSystemGetProcessName(pid)).rsplit("/", 1)[-1]
    except library.NVMLError:
        return "unknown"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
