"""Memory budgets from a card by name, the machine's free memory, or a GPU that TensorFlow sees."""

from __future__ import annotations

import dataclasses

import psutil
import pytest

from oomtune.devices import Gpu, resolve
from oomtune.devices.catalogue import find_card
from oomtune.devices.gpus import nvml_cards
from oomtune.domain import DeviceRequest
from oomtune.errors import BudgetTooLarge, NoSuchDevice
from tests.support.nvml import GIB, StandInNvml

T4 = Gpu(name="Tesla T4", memory_limit_bytes=13 * GIB)


def test_the_default_cpu_limit_is_four_fifths_of_free_memory() -> None:
    resolved = resolve(DeviceRequest(kind="cpu"), ())
    assert resolved.budget.limit_bytes == pytest.approx(0.8 * psutil.virtual_memory().available, rel=0.1)
    assert resolved.device.kind == "cpu"


def test_refuses_a_limit_above_the_free_memory_with_both_sizes() -> None:
    with pytest.raises(BudgetTooLarge, match=r"limit of 4\.0 TiB .* GiB of .* GiB are free"):
        resolve(DeviceRequest(kind="cpu", memory_limit_bytes=4096 * GIB), ())


def test_the_budget_is_the_limit_in_whole_mebibytes_less_the_headroom() -> None:
    resolved = resolve(DeviceRequest(kind="cpu", memory_limit_bytes=100 * 1024**2 + 5, headroom=0.1), ())
    assert (resolved.budget.limit_bytes, resolved.budget.budget_bytes) == (100 * 1024**2, 90 * 1024**2)


def test_a_card_by_name_sets_the_cpu_budget_with_a_warning() -> None:
    resolved = resolve(DeviceRequest(kind="cpu", like="gtx 1650"), ())
    assert resolved.budget.limit_bytes == find_card("gtx 1650").usable_bytes
    assert resolved.device.stands_in_for == "GeForce GTX 1650"
    assert "15 to 50 %" in resolved.notices[0]


def test_gpu_settings_have_no_effect_on_a_cpu_and_give_a_notice() -> None:
    request = DeviceRequest(kind="cpu", memory_limit_bytes=2**20, allocator="cuda_malloc_async", memory_growth=True)
    notices = resolve(request, ()).notices
    assert [notice.partition(" has no effect on the CPU")[0] for notice in notices] == [
        "device.allocator: cuda_malloc_async",
        "device.memory_growth: true",
    ]
    assert resolve(DeviceRequest(kind="cpu", memory_limit_bytes=2**20), ()).notices == ()


def test_auto_picks_a_gpu_when_tensorflow_sees_one() -> None:
    resolved = resolve(DeviceRequest(), (T4,))
    assert (resolved.device.kind, resolved.device.name, resolved.budget.limit_bytes) == ("gpu", "Tesla T4", 13 * GIB)
    assert resolve(DeviceRequest(), ()).device.kind == "cpu"
    assert resolve(DeviceRequest(kind="cpu", memory_limit_bytes=GIB), (T4,)).device.kind == "cpu"


def test_a_missing_gpu_is_an_error_that_suggests_the_cpu() -> None:
    with pytest.raises(NoSuchDevice) as caught:
        resolve(DeviceRequest(kind="gpu"), ())
    assert "--device cpu" in caught.value.hint


def test_refuses_a_limit_above_the_memory_of_the_gpu() -> None:
    with pytest.raises(BudgetTooLarge, match=r"limit of 14\.0 GiB is more than Tesla T4 has: .* 13\.0 GiB"):
        resolve(DeviceRequest(kind="gpu", memory_limit_bytes=14 * GIB), (T4,))


def test_a_process_on_the_probed_card_gives_a_notice() -> None:
    notices = resolve(DeviceRequest(kind="gpu"), (T4,), nvml_cards(StandInNvml())).notices
    assert notices == ("process 77 (python3) also has memory on Tesla T4: 1.0 GiB",)


def test_a_busy_card_that_tensorflow_does_not_see_gives_no_notice() -> None:
    (busy,) = nvml_cards(StandInNvml())
    idle = dataclasses.replace(busy, tenants=(), bus_id="0000:5e:00.0")

    def count_notices(gpu: Gpu) -> int:
        return len(resolve(DeviceRequest(kind="gpu"), (gpu,), [busy, idle]).notices)

    assert count_notices(dataclasses.replace(T4, bus_id="0000:3b:00.0")) == 1
    assert count_notices(dataclasses.replace(T4, bus_id="0000:5e:00.0")) == 0
    assert count_notices(T4) == 0
