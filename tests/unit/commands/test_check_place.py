"""Where a check runs: on the device of the evidence, on another that is allowed, or in place of a larger card."""

from __future__ import annotations

from typing import Any

import pytest

from oomtune.commands.check.place import Place, find_place
from oomtune.commands.check.run import run_trials
from oomtune.commands.check.subject import trials_of
from oomtune.devices.gpus import Gpu
from oomtune.devices.host import HostMemory
from oomtune.domain import Budget, Candidate, CheckResult, CheckVerdict, DeviceRequest
from oomtune.domain.observer import SilentObserver
from oomtune.errors import BudgetTooLarge, NoSuchDevice
from oomtune.report.check import certainty, check_message, check_rows
from oomtune.report.json_document import check_document
from oomtune.storage.tuned import TunedConfig
from oomtune.trials.fake import FakeDevice
from tests.support.checks import BEYOND_ANY_MACHINE, CRASH, ScriptedDevice, tuned_on, unrun_check

GIB = 1024**3
T4 = Gpu(name="Tesla T4", memory_limit_bytes=14 * GIB)
A10 = Gpu(name="NVIDIA A10", memory_limit_bytes=20 * GIB)


def place(kind: Any, tuned: TunedConfig, *gpus: Gpu, allowed: bool = False, named: bool = False) -> Place:
    return find_place(
        DeviceRequest(kind=kind), tuned.evidence, gpus, None, device_named=named, allow_other_device=allowed
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
    tuned = tuned_on("gpu", "Tesla T4", memory_limit_bytes=8 * GIB)
    assert place("gpu", tuned, A10).refused
    assert place("gpu", tuned, A10, allowed=True).resolved.budget.limit_bytes == A10.memory_limit_bytes
    same = place("auto", tuned, T4)
    assert (same.refused, same.other_device, same.resolved.budget.limit_bytes) == (False, None, 8 * GIB)
    with pytest.raises(BudgetTooLarge):
        place("cpu", tuned_on())


def test_a_card_named_by_a_flag_has_to_exist() -> None:
    with pytest.raises(NoSuchDevice):
        place("gpu", tuned_on("gpu", "Tesla T4"), allowed=True, named=True)
    with pytest.raises(NoSuchDevice):
        place("gpu", tuned_on("cpu"), allowed=True)


def on_small_machine(request: DeviceRequest, tuned: TunedConfig | None, **flags: Any) -> Place:
    """Find the place on a machine with 5 GiB free."""
    memory = HostMemory(total_bytes=8 * GIB, free_bytes=5 * GIB, bound_by="the machine's memory")
    evidence = tuned.evidence if tuned else None
    return find_place(request, evidence, (), None, device_named=False, allow_other_device=True, memory=memory, **flags)


def against(card: str, **flags: Any) -> Place:
    return on_small_machine(DeviceRequest(kind="cpu", like=card), tuned_on(), **flags)


def test_the_cpu_stands_in_for_a_larger_card_with_the_memory_it_has() -> None:
    place = against("T4")
    assert place.resolved.budget.limit_bytes == 4 * GIB
    assert place.resolved.device.stands_in_for == "Tesla T4"
    assert place.card_limit_bytes is not None
    assert place.card_limit_bytes > 13 * GIB
    assert "this machine can give 4.0 GiB" in place.resolved.notices[0]
    plain = on_small_machine(DeviceRequest(kind="cpu", like="T4"), None)
    assert plain.card_limit_bytes == place.card_limit_bytes


def test_plain_limits_and_updates_need_all_the_memory_they_name() -> None:
    with pytest.raises(BudgetTooLarge):
        against("T4", allow_smaller=False)
    with pytest.raises(BudgetTooLarge):
        on_small_machine(DeviceRequest(kind="cpu", memory_limit_bytes=6 * GIB), tuned_on())


def checked(device: FakeDevice, batch: int) -> CheckResult:
    place = against("T4")
    result = unrun_check(
        candidate=Candidate(batch_size=batch),
        device=place.resolved.device,
        budget=Budget(limit_bytes=1_000, headroom=0.0),
        card_limit_bytes=10_000,
    )
    return run_trials(result, trials_of(result.candidate, None), device, SilentObserver())[0]


def test_what_fits_in_less_memory_fits_the_card_and_the_limit_is_reported() -> None:
    result = checked(ScriptedDevice({}), batch=170)
    assert (result.verdict, result.exit_code) == (CheckVerdict.FITS, 0)
    # 950 of the machine's 1,000 bytes would be "not sure"; of the card's 10,000 they are little.
    assert certainty(result).startswith("sure: ")
    assert "this machine can give 1000 B, and a Tesla T4 has 9.8 KiB" in dict(check_rows(result))["how sure"]


def test_what_does_not_fit_in_less_memory_is_undecided_but_broken_stays_broken() -> None:
    result = checked(ScriptedDevice({}), batch=1_000)
    assert (result.verdict, result.exit_code) == (CheckVerdict.UNDECIDED, 5)
    assert "says nothing about the card" in check_message(result).sentence
    assert certainty(result).startswith("not known: ")
    assert check_document(result)["verdict"] == "undecided"
    assert checked(ScriptedDevice({1: CRASH}), batch=8).exit_code == 6
