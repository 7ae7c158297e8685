"""Turn the device that a spec requests into one of this machine's, with a memory budget that it can keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oomtune.devices.catalogue import Card, find_card
from oomtune.devices.gpus import Gpu, NvmlCard
from oomtune.devices.host import SHARE_OF_FREE, HostMemory, cpu_name, host_memory
from oomtune.domain import Budget, Device, DeviceRequest
from oomtune.errors import BudgetTooLarge, NoSuchDevice
from oomtune.units import MIB, format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    device: Device
    budget: Budget
    notices: tuple[str, ...] = ()


def resolve(
    request: DeviceRequest,
    gpus: tuple[Gpu, ...],
    cards: list[NvmlCard] | None = None,
    memory: HostMemory | None = None,
) -> Resolved:
    """Return the device to probe and its budget. Raise `EnvironmentProblem` if this machine can't give them."""
    if request.kind == "gpu" and not gpus:
        raise NoSuchDevice(
            "no GPU is visible to TensorFlow",
            hint="probe on the CPU: --device cpu --memory-limit 4GiB; or: oomtune doctor",
        )
    if request.kind == "cpu" or not gpus:
        return _cpu(request, memory or host_memory())
    return _gpu(request, gpus[0], _same_card(gpus[0], cards or []))


def _same_card(gpu: Gpu, cards: list[NvmlCard]) -> NvmlCard | None:
    """Return NVML's card for this GPU, or None if it is ambiguous.

    NVML also lists cards that are hidden from TensorFlow, and in another order.
    """
    matches = [card for card in cards if card.bus_id == gpu.bus_id] if gpu.bus_id else cards
    return matches[0] if len(matches) == 1 else None


def _cpu(request: DeviceRequest, memory: HostMemory) -> Resolved:
    card = find_card(request.like) if request.like is not None else None
    limit_bytes = card.usable_bytes if card else request.memory_limit_bytes
    if limit_bytes is None:
        limit_bytes = int(memory.free_bytes * SHARE_OF_FREE)
    elif limit_bytes > memory.free_bytes:
        raise BudgetTooLarge(
            f"the limit of {format_bytes(limit_bytes)} is more than this machine can hold: "
            f"{format_bytes(memory.free_bytes)} of {format_bytes(memory.total_bytes)} are free "
            f"(bound by {memory.bound_by})",
            hint="give a smaller --memory-limit, or free memory on the machine",
        )
    return Resolved(
        device=Device(kind="cpu", name=cpu_name(), stands_in_for=card.name if card else None),
        budget=_budget(limit_bytes, request),
        notices=tuple(_cpu_notices(request, card)),
    )


def _cpu_notices(request: DeviceRequest, card: Card | None) -> Iterator[str]:
    if card is not None:
        yield (
            f"the CPU stands in for a {card.name} with {format_bytes(card.usable_bytes)} ({card.basis}): its answers "
            "have been 15 to 50 % above what such cards really hold, so leave room or probe on a real one"
        )
    if request.allocator != "default":
        yield f"device.allocator: {request.allocator} has no effect on the CPU"
    if request.memory_growth:
        yield "device.memory_growth: true has no effect on the CPU"


def _gpu(request: DeviceRequest, gpu: Gpu, card: NvmlCard | None) -> Resolved:
    like = find_card(request.like) if request.like is not None else None
    limit_bytes = like.usable_bytes if like else request.memory_limit_bytes
    if limit_bytes is None:
        limit_bytes = gpu.memory_limit_bytes
    elif limit_bytes > gpu.memory_limit_bytes:
        raise BudgetTooLarge(
            f"the limit of {format_bytes(limit_bytes)} is more than {gpu.name} has: TensorFlow can take "
            f"{format_bytes(gpu.memory_limit_bytes)} of it now",
            hint="give a smaller --memory-limit, or free memory on the card (oomtune doctor shows who uses it)",
        )
    tenants = () if card is None else card.tenants
    return Resolved(
        device=Device(kind="gpu", name=gpu.name, allocator=request.allocator, memory_growth=request.memory_growth),
        budget=_budget(limit_bytes, request),
        notices=tuple(
            f"process {tenant.pid} ({tenant.name}) also has memory on {gpu.name}"
            + (f": {format_bytes(tenant.used_bytes)}" if tenant.used_bytes else "")
            for tenant in tenants
        ),
    )


def _budget(limit_bytes: int, request: DeviceRequest) -> Budget:
    # TensorFlow takes limits in whole MiB.
    return Budget(limit_bytes=max(1, limit_bytes // MIB) * MIB, headroom=request.headroom)
