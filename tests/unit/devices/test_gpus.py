"""What TensorFlow's worker and NVML report about GPUs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oomtune.devices.gpus import ask_tensorflow, nvml_cards
from oomtune.errors import WorkerBroken
from oomtune.trials.worker_host import Exit, WorkerHost
from tests.support.nvml import GIB, StandInNvml


def test_nvml_lists_cards_with_their_memory_and_processes() -> None:
    library = StandInNvml()
    (card,) = nvml_cards(library)
    assert (card.name, card.total_bytes, card.free_bytes, card.driver) == ("Tesla T4", 15 * GIB, 14 * GIB, "550.54.15")
    assert [(tenant.pid, tenant.name, tenant.used_bytes) for tenant in card.tenants] == [(77, "python3", GIB)]
    assert library.shut_down


def test_without_a_driver_or_permission_nvml_lists_less() -> None:
    assert nvml_cards(StandInNvml(driver=False)) == []
    (card,) = nvml_cards(StandInNvml(processes_allowed=False))
    assert card.tenants == ()
    assert nvml_cards() == []  # the real library, on a machine without a card


class KilledWhileAnswering(WorkerHost):
    """A worker that the kernel kills in the middle of its reply."""

    def __init__(self) -> None:
        """Start no process."""

    def call(self, order: bytes, *, timeout_s: float, watch: Callable[[bytes], None] | None = None) -> Exit:
        reply = b'{"value": {"tensorfl'
        return Exit(reply=reply, so_far=b"", exit_code=-9, output_tail="", timed_out=False, duration_s=1.0)


def test_a_worker_killed_while_answering_is_reported() -> None:
    with pytest.raises(WorkerBroken, match="ended without an answer"):
        ask_tensorflow(KilledWhileAnswering())
