"""This machine's GPUs, as TensorFlow and NVML (NVIDIA's management library) report them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomtune.trials.worker_host import WorkerHost

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that TensorFlow sees. `bus_id` distinguishes GPUs of the same name; it may be empty."""

    name: str
    memory_limit_bytes: int
    bus_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The installed TensorFlow, and the GPUs that it sees."""

    tensorflow: str
    keras: str
    cuda_build: bool
    cuda_version: str | None = None
    gpus: tuple[Gpu, ...] = ()


def ask_tensorflow(host: WorkerHost) -> Machine:
    """Return TensorFlow's report from a worker process, because this process does not import TensorFlow."""
    return host.ask("describe", None, Machine, timeout_s=_TIMEOUT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A process that holds memory on a card."""

    pid: int
    name: str
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlCard:
    """A card that NVML lists. `bus_id` has TensorFlow's format; it may be empty."""

    name: str
    total_bytes: int
    free_bytes: int
    driver: str
    tenants: tuple[Tenant, ...]
    bus_id: str = ""


def nvml_cards(library: Any = None) -> list[NvmlCard]:
    """Return every card that NVML lists; none without a driver. `library` replaces pynvml in tests."""
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
        cards = [_card(library, handle, driver) for handle in handles]
        return [card for card in cards if card is not None]
    except library.NVMLError:
        return []
    finally:
        library.nvmlShutdown()


def _card(library: Any, handle: Any, driver: str) -> NvmlCard | None:
    try:
        memory = library.nvmlDeviceGetMemoryInfo(handle)
    except library.NVMLError:
        return None  # the card is lost, or shares its memory with the host
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
        # NVML's 00000000:3B:00.0 is TensorFlow's 0000:3b:00.0.
        return _text(library.nvmlDeviceGetPciInfo(handle).busId).lower()[-12:]
    except library.NVMLError:
        return ""


def _tenants(library: Any, handle: Any) -> tuple[Tenant, ...]:
    try:
        processes = library.nvmlDeviceGetComputeRunningProcesses(handle)
    except library.NVMLError:
        return ()  # some drivers show processes only to the administrator
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
