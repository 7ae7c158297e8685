"""Where a check runs: the device that is here, beside the one that the answer was found on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomtune.devices import Resolved, ask_tensorflow, resolve
from oomtune.devices.catalogue import find_card
from oomtune.devices.gpus import Gpu, NvmlCard, nvml_cards
from oomtune.domain import Change, Device, DeviceRequest
from oomtune.errors import BudgetTooLarge
from oomtune.storage.tuned import TunedConfig
from oomtune.units import format_bytes

if TYPE_CHECKING:
    from oomtune.commands.check.options import CheckOptions
    from oomtune.commands.check.subject import Subject
    from oomtune.trials.worker_host import WorkerHost


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    resolved: Resolved
    other: Change | None = None
    """How the device differs from the one of the evidence, if so much that figures can't be compared."""
    refused: bool = False
    """Is nothing to be run here because of that?"""
    card_limit_bytes: int | None = None
    """What the card has that the CPU stands in for, where this machine has less."""


def find_place(subject: Subject, options: CheckOptions, host: WorkerHost) -> Place:
    asked = subject.loaded.spec.device
    gpus = () if asked.kind == "cpu" else ask_tensorflow(host).gpus
    return place_for(
        asked,
        subject.tuned,
        gpus,
        nvml_cards() if gpus else None,
        insisted=options.device is not None,
        elsewhere_is_well=options.elsewhere_is_well,
        less_is_well=not options.update,
    )


def place_for(
    asked: DeviceRequest,
    tuned: TunedConfig | None,
    gpus: tuple[Gpu, ...],
    cards: list[NvmlCard] | None,
    *,
    insisted: bool,
    elsewhere_is_well: bool,
    less_is_well: bool = True,
) -> Place:
    """The device and the budget to check with. `insisted`: the device was named beside the file. `less_is_well`: a
    card larger than this machine may be stood in for with what there is, as what fits into less fits the card."""
    if tuned is None:
        return _placed(asked, gpus, cards, None, less_is_well=less_is_well)
    if asked.kind == "gpu" and not gpus and tuned.device_kind == "gpu" and not insisted:
        # The file asks for the card that it was tuned on. That there is none here is the answer, or is well.
        asked = dataclasses.replace(asked, kind="auto")
    # First what is here, with no limit set: one that only the other device has room for is not to be tried on this.
    here = resolve(dataclasses.replace(asked, memory_limit_bytes=None, like=None), gpus, cards)
    stands_in_for = find_card(asked.like).name if asked.like is not None and here.device.kind == "cpu" else None
    other = other_device(tuned, dataclasses.replace(here.device, stands_in_for=stands_in_for))
    if other is not None and not elsewhere_is_well:
        return Place(resolved=here, other=other, refused=True)
    if other is None and asked.memory_limit_bytes is None and asked.like is None:
        # What is free differs from day to day; the question is whether it fits where it fitted.
        asked = dataclasses.replace(asked, memory_limit_bytes=tuned.memory_limit_bytes)
    return _placed(asked, gpus, cards, other, less_is_well=less_is_well)


def _placed(
    asked: DeviceRequest,
    gpus: tuple[Gpu, ...],
    cards: list[NvmlCard] | None,
    other: Change | None,
    *,
    less_is_well: bool,
) -> Place:
    try:
        return Place(resolved=resolve(asked, gpus, cards), other=other)
    except BudgetTooLarge:
        here = resolve(dataclasses.replace(asked, memory_limit_bytes=None, like=None), gpus, cards)
        if asked.like is None or here.device.kind != "cpu" or not less_is_well:
            raise
    card = find_card(asked.like)
    has, to_give = (format_bytes(size) for size in (card.usable_bytes, here.budget.limit_bytes))
    notice = (
        f"a {card.name} has {has}, and this machine {to_give} to give: what fits here fits that card's memory too, "
        "and what does not may still"
    )
    stand_in = dataclasses.replace(here.device, stands_in_for=card.name)
    resolved = dataclasses.replace(here, device=stand_in, notices=(notice, *here.notices))
    return Place(resolved=resolved, other=other, card_limit_bytes=card.usable_bytes)


def other_device(tuned: TunedConfig, now: Device) -> Change | None:
    """A change of the device that makes the evidence worthless. One CPU is as good as another: its limit is set."""
    name = str(tuned.evidence["device"].get("name", ""))
    same = tuned.device_kind == now.kind and tuned.stands_in_for == now.stands_in_for
    if same and (now.kind == "cpu" or name == now.name):
        return None
    return Change(
        what="device",
        before=_words(tuned.device_kind, name, tuned.stands_in_for),
        now=_words(now.kind, now.name, now.stands_in_for),
    )


def _words(kind: str, name: str, stands_in_for: str | None) -> str:
    return f"{kind.upper()} {name}" + (f" as a {stands_in_for}" if stands_in_for else "")
