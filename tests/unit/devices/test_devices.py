"""Budgets: from cards by name, from the machine's free memory, from a GPU that TensorFlow sees."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from oomtune.devices import Gpu, ask_tensorflow, resolve
from oomtune.devices.catalogue import cards, find_card
from oomtune.devices.host_memory import host_memory
from oomtune.devices.nvml import nvml_cards
from oomtune.domain import DeviceRequest
from oomtune.errors import BudgetTooLarge, NoSuchDevice, UsageProblem, WorkerBroken
from oomtune.trials.worker_host import Exit, WorkerHost
from tests.support.cli import ROOT

GIB = 1024**3


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("T4", "Tesla T4"),
        ("t4", "Tesla T4"),
        ("Tesla T4", "Tesla T4"),
        ("nvidia tesla t4", "Tesla T4"),
        ("rtx 3090", "GeForce RTX 3090"),
        ("RTX3090", "GeForce RTX 3090"),
        ("3090", "GeForce RTX 3090"),
        ("A100-40GB", "NVIDIA A100-SXM4-40GB"),
        ("a100 80gb", "NVIDIA A100-SXM4-80GB"),
        ("RTX 3060", "GeForce RTX 3060"),
        ("rtx 3060 laptop", "GeForce RTX 3060 Laptop GPU"),
        ("1080 ti", "GeForce GTX 1080 Ti"),
        ("1080", "GeForce GTX 1080"),
        ("L4", "NVIDIA L4"),
    ],
)
def test_cards_are_found_by_the_names_people_use(wanted: str, name: str) -> None:
    assert find_card(wanted).name == name


def test_every_card_is_found_by_its_own_name() -> None:
    assert len(cards()) == 54
    for card in cards():
        assert find_card(card.name) == card


def test_a_name_that_means_two_cards_lists_both() -> None:
    with pytest.raises(UsageProblem, match="NVIDIA A100-SXM4-40GB, NVIDIA A100-SXM4-80GB"):
        find_card("A100")


@pytest.mark.parametrize("wanted", ["RTX 3091", "T5", "", "banana"])
def test_an_unknown_card_lists_the_near_ones(wanted: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        find_card(wanted)
    assert "near it: " in caught.value.hint
    assert any(card.name in caught.value.hint for card in cards())


def test_the_catalogue_never_gives_more_than_a_card_has() -> None:
    path = ROOT / "oomtune/devices/gpus.csv"
    for row in csv.DictReader(path.read_text().splitlines()):
        assert 0 < int(row["usable_mib"]) <= (int(row["nominal_gib"]) + 1) * 1024


def test_without_a_limit_the_cpu_gives_four_fifths_of_what_is_free() -> None:
    found = resolve(DeviceRequest(kind="cpu"), ())
    assert found.budget.limit_bytes == pytest.approx(0.8 * psutil.virtual_memory().available, rel=0.1)
    assert found.device.kind == "cpu"


def test_a_limit_that_the_machine_cannot_hold_is_refused_with_both_numbers() -> None:
    with pytest.raises(BudgetTooLarge, match=r"limit of 4\.0 TiB .* GiB of .* GiB are free"):
        resolve(DeviceRequest(kind="cpu", memory_limit_bytes=4096 * GIB), ())


def test_headroom_is_taken_from_the_limit_and_limits_are_whole_mebibytes() -> None:
    found = resolve(DeviceRequest(kind="cpu", memory_limit_bytes=100 * 1024**2 + 5, headroom=0.1), ())
    assert (found.budget.limit_bytes, found.budget.budget_bytes) == (100 * 1024**2, 90 * 1024**2)


def test_a_card_by_name_gives_the_cpu_its_budget_and_a_warning() -> None:
    found = resolve(DeviceRequest(kind="cpu", like="gtx 1650"), ())
    assert found.budget.limit_bytes == find_card("gtx 1650").usable_bytes
    assert found.device.stands_in_for == "GeForce GTX 1650"
    assert "15 to 50 %" in found.notices[0]


T4 = Gpu(name="Tesla T4", memory_limit_bytes=13 * GIB)


def test_what_only_a_gpu_has_is_said_to_do_nothing_on_a_cpu() -> None:
    asked = DeviceRequest(kind="cpu", memory_limit_bytes=2**20, allocator="cuda_malloc_async", memory_growth=True)
    said = resolve(asked, ()).notices
    assert [notice.partition(" does nothing here")[0] for notice in said] == [
        "device.allocator: cuda_malloc_async",
        "device.memory_growth: true",
    ]
    assert resolve(DeviceRequest(kind="cpu", memory_limit_bytes=2**20), ()).notices == ()


def test_auto_takes_a_gpu_when_tensorflow_sees_one() -> None:
    found = resolve(DeviceRequest(), (T4,))
    assert (found.device.kind, found.device.name, found.budget.limit_bytes) == ("gpu", "Tesla T4", 13 * GIB)
    assert resolve(DeviceRequest(), ()).device.kind == "cpu"
    assert resolve(DeviceRequest(kind="cpu", memory_limit_bytes=GIB), (T4,)).device.kind == "cpu"


def test_a_gpu_that_is_not_there_is_said_with_what_to_do() -> None:
    with pytest.raises(NoSuchDevice) as caught:
        resolve(DeviceRequest(kind="gpu"), ())
    assert "--device cpu" in caught.value.hint


def test_a_gpu_cannot_be_given_more_than_it_has() -> None:
    with pytest.raises(BudgetTooLarge, match=r"limit of 14\.0 GiB is more than Tesla T4 has: .* 13\.0 GiB"):
        resolve(DeviceRequest(kind="gpu", memory_limit_bytes=14 * GIB), (T4,))


class StandInNvml:
    """As much of pynvml as is used, for one card that another process is on."""

    class NVMLError(Exception): ...

    def __init__(self, *, driver: bool = True, processes_allowed: bool = True) -> None:
        self.driver = driver
        self.processes_allowed = processes_allowed
        self.shut_down = False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut_down = True

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"550.54.15"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "Tesla T4"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=15 * GIB, free=14 * GIB, used=GIB)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:3B:00.0")

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        if not self.processes_allowed:
            raise self.NVMLError("Insufficient Permissions")
        return [SimpleNamespace(pid=77, usedGpuMemory=GIB)]

    def nvmlSystemGetProcessName(self, pid: int) -> bytes:  # noqa: N802
        return b"/usr/bin/python3"


def test_nvml_tells_of_cards_memory_and_who_else_is_there() -> None:
    library = StandInNvml()
    (card,) = nvml_cards(library)
    assert (card.name, card.total_bytes, card.free_bytes, card.driver) == ("Tesla T4", 15 * GIB, 14 * GIB, "550.54.15")
    assert [(tenant.pid, tenant.name, tenant.used_bytes) for tenant in card.tenants] == [(77, "python3", GIB)]
    assert library.shut_down
    notices = resolve(DeviceRequest(kind="gpu"), (T4,), [card]).notices
    assert notices == ("process 77 (python3) also has memory on Tesla T4: 1.0 GiB",)


def test_who_is_on_another_card_than_the_one_that_tensorflow_sees_is_not_told_of() -> None:
    (busy,) = nvml_cards(StandInNvml())
    idle = dataclasses.replace(busy, tenants=(), bus_id="0000:5e:00.0")

    def told(gpu: Gpu) -> int:
        return len(resolve(DeviceRequest(kind="gpu"), (gpu,), [busy, idle]).notices)

    assert told(dataclasses.replace(T4, bus_id="0000:3b:00.0")) == 1
    assert told(dataclasses.replace(T4, bus_id="0000:5e:00.0")) == 0
    assert told(T4) == 0


class EndedWhileItAnswers(WorkerHost):
    """A worker that the kernel ends in the middle of its reply."""

    def __init__(self) -> None:
        """Nothing is started."""

    def call(self, order: bytes, *, timeout_s: float, watch: Callable[[bytes], None] | None = None) -> Exit:
        reply = b'{"value": {"tensorfl'
        return Exit(reply=reply, so_far=b"", exit_code=-9, output_tail="", timed_out=False, duration_s=1.0)


def test_a_worker_that_is_ended_while_it_answers_has_not_answered() -> None:
    with pytest.raises(WorkerBroken, match="ended without an answer"):
        ask_tensorflow(EndedWhileItAnswers())


def test_without_a_driver_or_without_permission_nvml_says_less_and_nothing_breaks() -> None:
    assert nvml_cards(StandInNvml(driver=False)) == []
    (card,) = nvml_cards(StandInNvml(processes_allowed=False))
    assert card.tenants == ()
    assert nvml_cards() == []  # the real library, on a machine without a card


def group(root: Path, membership: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_version_two_control_group_bounds_what_is_free(tmp_path: Path) -> None:
    root = group(
        tmp_path,
        "0::/pod/box\n",
        {
            "pod/memory.max": f"{GIB}\n",
            "pod/memory.current": f"{GIB // 2}\n",
            "pod/memory.stat": f"anon 5\ninactive_file {GIB // 4}\n",
            "pod/box/memory.max": "max\n",
            "pod/box/memory.current": "0\n",
            "pod/box/memory.stat": "inactive_file 0\n",
        },
    )
    found = host_memory(root)
    assert (found.free_bytes, found.total_bytes) == (GIB * 3 // 4, GIB)
    assert "control group" in found.bound_by


def test_a_version_one_control_group_bounds_it_too(tmp_path: Path) -> None:
    root = group(
        tmp_path,
        "5:memory:/docker/abc\n3:cpu,cpuacct:/x\n",
        {
            "memory/memory.limit_in_bytes": f"{GIB}\n",
            "memory/memory.usage_in_bytes": f"{GIB // 4}\n",
            "memory/memory.stat": "total_inactive_file 0\n",
        },
    )
    assert host_memory(root).free_bytes == GIB * 3 // 4


def test_a_group_without_a_limit_leaves_the_machine_to_bound_it(tmp_path: Path) -> None:
    files = {"memory.max": "max\n", "memory.current": "1\n", "memory.stat": "inactive_file 0\n"}
    found = host_memory(group(tmp_path, "0::/\n", files))
    assert found.bound_by == "the machine"
