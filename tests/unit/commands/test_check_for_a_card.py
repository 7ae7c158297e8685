"""A check in place of a card: also of one with more memory than this machine has to give."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from oomtune.commands.check.place import Place, find_place
from oomtune.commands.check.run import run_trials
from oomtune.commands.check.subject import trials_of
from oomtune.devices.host import HostMemory
from oomtune.domain import Budget, Candidate, CheckResult, CheckVerdict, DeviceRequest
from oomtune.domain.observer import SilentObserver
from oomtune.errors import BudgetTooLarge
from oomtune.report.check import certainty, check_message, check_rows
from oomtune.report.json_document import check_document
from oomtune.trials.fake import FakeDevice
from tests.support.checks import CRASH, ScriptedDevice, tuned_on, unrun_check

GIB = 1024**3


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = HostMemory(total_bytes=8 * GIB, free_bytes=5 * GIB, bound_by="the machine's memory")
    monkeypatch.setattr(importlib.import_module("oomtune.devices.resolve"), "host_memory", lambda: memory)


def against(card: str, **flags: Any) -> Place:
    asked = DeviceRequest(kind="cpu", like=card)
    return find_place(asked, tuned_on().evidence, (), None, device_named=False, allow_other_device=True, **flags)


def test_the_cpu_stands_in_for_a_larger_card_with_the_memory_it_has() -> None:
    place = against("T4")
    assert place.resolved.budget.limit_bytes == 4 * GIB
    assert place.resolved.device.stands_in_for == "Tesla T4"
    assert place.card_limit_bytes is not None
    assert place.card_limit_bytes > 13 * GIB
    assert "this machine can give 4.0 GiB" in place.resolved.notices[0]
    plain = find_place(
        DeviceRequest(kind="cpu", like="T4"), None, (), None, device_named=False, allow_other_device=True
    )
    assert plain.card_limit_bytes == place.card_limit_bytes


def test_plain_limits_and_updates_need_all_the_memory_they_name() -> None:
    with pytest.raises(BudgetTooLarge):
        against("T4", allow_smaller=False)
    asked = DeviceRequest(kind="cpu", memory_limit_bytes=6 * GIB)
    with pytest.raises(BudgetTooLarge):
        find_place(asked, tuned_on().evidence, (), None, device_named=False, allow_other_device=True)


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
