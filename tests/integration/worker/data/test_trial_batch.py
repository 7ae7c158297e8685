"""Data that training keeps in memory also takes memory during a trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from oomtune.domain import (
    Budget,
    Candidate,
    Device,
    Layers,
    NpzData,
    Scan,
    Search,
    TrainingSpec,
    TrialSettings,
    WorkOrder,
)
from oomtune.worker.data import trial_batch, worst_samples
from oomtune.worker.data.scan import scan
from oomtune.worker.data.source import HeldArrays
from tests.support.cli import Cli


@pytest.mark.parametrize(
    ("device", "in_host_memory"),
    [
        (Device(kind="cpu", name="a CPU"), False),
        (Device(kind="cpu", name="a CPU", stands_in_for="Tesla T4"), True),
        (Device(kind="gpu", name="a card"), True),
    ],
)
def test_arrays_take_host_memory_beside_a_card_and_device_memory_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device, in_host_memory: bool
) -> None:
    monkeypatch.setattr(trial_batch, "_resident_data", [])
    np.savez(tmp_path / "a.npz", x=np.zeros((10, 3), "float32"), y=np.zeros(10, "float32"))
    dataset = NpzData(paths=("a.npz",), inputs="x", targets="y")
    result, samples = scan(dataset, str(tmp_path), lambda count, share: None)
    worst_samples.save(samples, result.sequences, tmp_path / "rows.npz")
    order = WorkOrder(
        trial=Search(candidate=Candidate(batch_size=4)),
        folder=str(tmp_path),
        model=Layers(layers=()),
        dataset=dataset,
        training=TrainingSpec(),
        settings=TrialSettings(),
        device=device,
        budget=Budget(limit_bytes=1),
        scan=_with_rows(result, tmp_path / "rows.npz"),
    )
    inputs, targets = next(iter(trial_batch.pipeline(order, Candidate(batch_size=4))))
    assert (inputs.shape, targets.shape) == ((4, 3), (4,))
    (resident,) = trial_batch._resident_data
    if in_host_memory:
        assert isinstance(resident, HeldArrays)
        assert isinstance(resident.arrays[0], np.ndarray)
        assert resident.arrays[0].shape == (10, 3)
    else:
        assert isinstance(resident, tf.data.Dataset)


def test_a_probe_leaves_nothing_in_the_temporary_folder(cli: Cli, spec_file: Callable[..., Path]) -> None:
    np.savez(cli.folder / "a.npz", x=np.zeros((10, 64), "float32"), y=np.zeros((10, 1), "float32"))
    temporary = cli.folder / "temporary"
    temporary.mkdir()
    spec = spec_file(dataset={"npz": {"path": "a.npz"}}, search__batch_size=[8])
    ran = cli("probe", spec, env={"TMPDIR": str(temporary)})
    assert ran.code == 0, ran.err
    assert list(temporary.iterdir()) == []


def _with_rows(result: Scan, path: Path) -> Scan:
    return dataclasses.replace(result, rows_path=str(path))
