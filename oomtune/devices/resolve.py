"""From what was asked for to a device and a budget that this machine can keep."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.devices.catalogue import Card, find_card
from oomtune.devices.host_memory import SHARE_OF_FREE, HostMemory, cpu_name, host_memory
from oomtune.devices.nvml import NvmlCard
from oomtune.devices.tensorflow_view import Gpu
from oomtune.domain import Budget, Device, DeviceRequest
from oomtune.errors import BudgetTooLarge, NoSuchDevice
from oomtune.units import MIB, format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    device: Device
    budget: Budget
    notices: tuple[str, ...] = ()


def resolve(request: DeviceRequest, gpus: tuple[Gpu, ...], cards: list[NvmlCard] | None = None) -> Resolved:
    """The device to probe and its budget. `gpus` are TensorFlow's, `cards` NVML's."""
    if request.kind == "gpu" and not gpus:
        raise NoSuchDevice(
            "no GPU is visible to TensorFlow",
            hint="probe on the CPU: --device cpu --memory-limit 4GiB; or: oomtune doctor",
        )
    if request.kind == "cpu" or not gpus:
        return _cpu(request, host_memory())
    return _gpu(request, gpus[0], _same_card(gpus[0], cards or []))


def _same_card(gpu: Gpu, cards: list[NvmlCard]) -> NvmlCard | None:
    """The card that TensorFlow means; None where that can't be told. NVML also lists the cards that are hidden from
    TensorFlow, and in an order of its own."""
    alike = [card for card in cards if card.bus_id == gpu.bus_id] if gpu.bus_id else cards
    return alike[0] if len(alike) == 1 else None


def _cpu(request: DeviceRequest, memory: HostMemory) -> Resolved:
    card = find_card(request.like) if request.like is not None else None
    limit = card.usable_bytes if card else request.memory_limit_bytes
    if limit is None:
        limit = int(memory.free_bytes * SHARE_OF_FREE)
    elif limit > memory.free_bytes:
        raise BudgetTooLarge(
            f"the limit of {format_bytes(limit)} is more than this machine can hold: {format_bytes(memory.free_bytes)} "
            f"of {format_bytes(memory.total_bytes)} are free (bound by {memory.bound_by})",
            hint="give a smaller --memory-limit, or free memory on the machine",
        )
    return Resolved(
        device=Device(kind="cpu", name=cpu_name(), stands_in_for=card.name if card else None),
        budget=_budget(limit, request),
        notices=(*(_stand_in_notice(card) if card else ()), *_for_a_gpu_only(request)),
    )


def _stand_in_notice(card: Card) -> tuple[str, ...]:
    return (
        f"the CPU stands in for a {card.name} with {format_bytes(card.usable_bytes)} ({card.basis}): its answers "
        "have come out 15 to 50 % above what such cards really hold, so leave room or probe on one",
    )


def _for_a_gpu_only(request: DeviceRequest) -> tuple[str, ...]:
    asked = {
        f"device.allocator: {request.allocator}": request.allocator != "default",
        "device.memory_growth: true": request.memory_growth,
    }
    return tuple(f"{key} does nothing here: the CPU is probed, and only a GPU has it" for key in asked if asked[key])


def _gpu(request: DeviceRequest, gpu: Gpu, card: NvmlCard | None) -> Resolved:
    like = find_card(request.like) if request.like is not None else None
    limit = like.usable_bytes if like else request.memory_limit_bytes
    if limit is None:
        limit = gpu.memory_limit_bytes
    elif limit > gpu.memory_limit_bytes:
        raise BudgetTooLarge(
            f"the limit of {format_bytes(limit)} is more than {gpu.name} has: TensorFlow can take "
            f"{format_bytes(gpu.memory_limit_bytes)} of it now",
            hint="give a smaller --memory-limit, or free memory on the card (oomtune doctor says who has it)",
        )
    tenants = () if card is None else card.tenants
    return Resolved(
        device=Device(kind="gpu", name=gpu.name, allocator=request.allocator, memory_growth=request.memory_growth),
        budget=_budget(limit, request),
        notices=tuple(
            f"process {tenant.pid} ({tenant.name}) also has memory on {gpu.name}"
            + (f": {format_bytes(tenant.used_bytes)}" if tenant.used_bytes else "")
            for tenant in tenants
        ),
    )


def _budget(limit_bytes: int, request: DeviceRequest) -> Budget:
    # TensorFlow takes limits in whole MiB.
    return Budget(limit_bytes=max(1, limit_bytes // MIB) * MIB, headroom=request.headroom)
