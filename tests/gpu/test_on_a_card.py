"""Probes on a real GPU. Off by default; `make test-gpu` runs them on a machine with one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Cli

pytestmark = pytest.mark.gpu

ON_THE_CARD = {"device": {"kind": "gpu", "memory_limit": "2GiB"}, "search__batch_size": {"min": 1, "max": 1_000_000}}


def test_device_auto_uses_the_gpu(cli: Cli, spec_file: Callable[..., Path]) -> None:
    ran = cli("probe", spec_file(device={"kind": "auto"}, search__batch_size=[8]), "--json")
    assert ran.code == 0, ran.err
    assert ran.document["environment"]["device"]["kind"] == "gpu"


def test_a_probe_confirms_the_largest_batch_under_a_memory_limit(cli: Cli, spec_file: Callable[..., Path]) -> None:
    ran = cli("probe", spec_file(**ON_THE_CARD), "--json")
    assert ran.code == 0, ran.err
    document = ran.document
    assert document["memory"]["limit_bytes"] == 2 * 1024**3
    assert 0.5 < document["memory"]["peak_bytes"] / document["memory"]["budget_bytes"] <= 1
    assert any(trial["outcome"] == "device_oom" for trial in document["trials"])


def test_two_probes_agree_within_resolution_and_noise(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file(**ON_THE_CARD)
    batches = [cli("probe", spec, "--fresh", "--json").document["best"]["batch_size"] for _ in range(2)]
    assert batches[0] == pytest.approx(batches[1], rel=0.05 + 0.03)


def test_a_probe_works_with_the_asynchronous_allocator(cli: Cli, spec_file: Callable[..., Path]) -> None:
    spec = spec_file(**ON_THE_CARD, search__batch_size__max=64)
    ran = cli("probe", spec, "--set", "device.allocator=cuda_malloc_async", "--set", "search.batch_size=64", "--json")
    assert ran.code == 0, ran.err


def test_a_limit_above_the_memory_of_the_gpu_is_refused(cli: Cli, spec_file: Callable[..., Path]) -> None:
    assert cli("probe", spec_file(), "--device", "gpu", "--memory-limit", "900GiB").code == 5


def test_the_doctor_names_the_gpu(cli: Cli) -> None:
    assert "GPU 0" in cli("doctor").out
