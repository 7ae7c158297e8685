"""Where a check runs: on the device that the evidence is of, or on another that was allowed."""

from __future__ import annotations

from typing import Any

import pytest

from oomtune.commands.check.place import Place, find_place
from oomtune.devices.gpus import Gpu
from oomtune.domain import (
    DeviceRequest,
)
from oomtune.errors import BudgetTooLarge, NoSuchDevice
from oomtune.storage.tuned import TunedConfig
from tests.support.checks import BEYOND_ANY_MACHINE, tuned_on

T4 = Gpu(name="Tesla T4", memory_limit_bytes=14 * 1024**3)
A10 = Gpu(name="NVIDIA A10", memory_limit_bytes=20 * 1024**3)


def place(kind: Any, tuned: TunedConfig, *gpus: Gpu, allowed: bool = False, insisted: bool = False) -> Place:
    return find_place(
        DeviceRequest(kind=kind), tuned.evidence, gpus, None, device_named=insisted, allow_other_device=allowed
    )


@pytest.mark.parametrize("kind", ["gpu", "auto"])
def test_a_missing_card_is_the_wrong_device_whatever_its_limit(kind: str) -> None:
    tuned = tuned_on("gpu", "Tesla T4")
    refused = place(kind, tuned)
    assert refused.refused
    assert refused.other_device is not None
    assert refused.other_device.before == "GPU Tesla T4"
    well = place(kind, tuned, allowed=True)
    assert not well.refused
    assert well.resolved.device.kind == "cpu"
    assert well.resolved.budget.limit_bytes < BEYOND_ANY_MACHINE
    assert well.other_device == refused.other_device


def test_another_card_is_another_device_and_the_same_card_gets_the_limit_of_the_evidence() -> None:
    tuned = tuned_on("gpu", "Tesla T4", memory_limit_bytes=8 * 1024**3)
    assert place("gpu", tuned, A10).refused
    assert place("gpu", tuned, A10, allowed=True).resolved.budget.limit_bytes == A10.memory_limit_bytes
    same = place("auto", tuned, T4)
    assert (same.refused, same.other_device, same.resolved.budget.limit_bytes) == (False, None, 8 * 1024**3)
    with pytest.raises(BudgetTooLarge):
        place("cpu", tuned_on())


def test_a_card_named_by_a_flag_has_to_exist() -> None:
    with pytest.raises(NoSuchDevice):
        place("gpu", tuned_on("gpu", "Tesla T4"), allowed=True, insisted=True)
    with pytest.raises(NoSuchDevice):
        place("gpu", tuned_on("cpu"), allowed=True)
