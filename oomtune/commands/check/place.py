"""Where a check runs: the device that is here, compared with the one that the answer was found on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from oomtune.devices import Resolved, resolve
from oomtune.devices.catalogue import find_card
from oomtune.devices.gpus import Gpu, NvmlCard
from oomtune.devices.host import HostMemory, host_memory
from oomtune.domain import Change, Device, DeviceRequest
from oomtune.errors import BudgetTooLarge
from oomtune.storage.tuned import Evidence
from oomtune.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    resolved: Resolved
    other_device: Change | None = None
    """How the device differs from that of the evidence, if figures can't be compared because of it."""
    refused: bool = False
    """Whether nothing may run here because of that."""
    card_limit_bytes: int | None = None
    """The limit of the card that the CPU stands in for, if this machine has less."""


def find_place(
    request: DeviceRequest,
    evidence: Evidence | None,
    gpus: tuple[Gpu, ...],
    cards: list[NvmlCard] | None,
    *,
    device_named: bool,
    allow_other_device: bool,
    allow_smaller: bool = True,
    memory: HostMemory | None = None,
) -> Place:
    """Return the device and the budget to check with.

    `device_named` means that a flag chose the device. With `allow_smaller`, this machine may stand in for a card with
    more memory: what fits into less memory fits the card."""
    memory = memory or host_memory()
    if evidence is None:
        return _resolve(request, gpus, cards, memory, None, allow_smaller=allow_smaller)
    if request.kind == "gpu" and not gpus and evidence.device_kind == "gpu" and not device_named:
        # The file asks for the card that it was tuned on. A missing card is a verdict here, not an error.
        request = dataclasses.replace(request, kind="auto")
    # Resolve without a limit first: a limit that only the other device can give must not fail on this one.
    here = resolve(dataclasses.replace(request, memory_limit_bytes=None, like=None), gpus, cards, memory)
    stands_in_for = find_card(request.like).name if request.like is not None and here.device.kind == "cpu" else None
    other = _compare_devices(evidence, dataclasses.replace(here.device, stands_in_for=stands_in_for))
    if other is not None and not allow_other_device:
        return Place(resolved=here, other_device=other, refused=True)
    if other is None and request.memory_limit_bytes is None and request.like is None:
        # Free memory changes from day to day; the question is whether it fits where it fitted.
        request = dataclasses.replace(request, memory_limit_bytes=evidence.memory_limit_bytes)
    return _resolve(request, gpus, cards, memory, other, allow_smaller=allow_smaller)


def _resolve(
    request: DeviceRequest,
    gpus: tuple[Gpu, ...],
    cards: list[NvmlCard] | None,
    memory: HostMemory,
    other: Change | None,
    *,
    allow_smaller: bool,
) -> Place:
    try:
        return Place(resolved=resolve(request, gpus, cards, memory), other_device=other)
    except BudgetTooLarge:
        here = resolve(dataclasses.replace(request, memory_limit_bytes=None, like=None), gpus, cards, memory)
        if request.like is None or here.device.kind != "cpu" or not allow_smaller:
            raise
    card = find_card(request.like)
    card_limit, limit = (format_bytes(size) for size in (card.usable_bytes, here.budget.limit_bytes))
    notice = (
        f"a {card.name} has {card_limit}, and this machine can give {limit}: what fits here also fits the card, "
        "but what does not may still fit it"
    )
    stand_in = dataclasses.replace(here.device, stands_in_for=card.name)
    resolved = dataclasses.replace(here, device=stand_in, notices=(notice, *here.notices))
    return Place(resolved=resolved, other_device=other, card_limit_bytes=card.usable_bytes)


def _compare_devices(evidence: Evidence, now: Device) -> Change | None:
    """Return the change of device that makes the evidence worthless; any CPU will do, because its limit is set."""
    same_kind = evidence.device_kind == now.kind and evidence.stands_in_for == now.stands_in_for
    if same_kind and (now.kind == "cpu" or evidence.device_name == now.name):
        return None
    return Change(
        what="device",
        before=_words(evidence.device_kind, evidence.device_name, evidence.stands_in_for),
        now=_words(now.kind, now.name, now.stands_in_for),
    )


def _words(kind: str, name: str, stands_in_for: str | None) -> str:
    return f"{kind.upper()} {name}" + (f" as a {stands_in_for}" if stands_in_for else "")
