"""Arrays in .npz and .npy files are read whole, and unusable ones are reported by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomtune.domain import Scan
from oomtune.worker.data import open_source
from oomtune.worker.data.source import Bounds, HeldArrays
from tests.support.cli import Cli
from tests.support.reading import Read


def test_whole_arrays_are_kept_and_padding_does_not_count(tmp_path: Path, read: Read, dataset: Any) -> None:
    x = np.array([[0, 0, 0, 0], [5, 0, 7, 0], [1, 2, 3, 4], [9, 9, 0, 0]])
    np.savez(tmp_path / "a.npz", x=x, y=np.array([0, 1, 2, 1]))
    result, worst = read(npz={"path": "a.npz"})
    assert result == Scan(
        samples=4,
        read=4,
        lengths=((1, 1), (2, 1), (3, 1), (4, 1)),
        ranges={"inputs.": (0, 9), "targets.": (0, 2)},
        sequences=("inputs.",),
    )
    assert [inputs.tolist() for inputs, _ in worst] == [x[2].tolist(), x[1].tolist(), x[3].tolist(), x[0].tolist()]
    assert worst[0][0].base is None, "one sample does not keep the whole array in memory"
    source = open_source(dataset(npz={"path": "a.npz"}), str(tmp_path))
    assert isinstance(source, HeldArrays)
    assert source.arrays[0].shape == (4, 4)


def test_archives_of_a_pattern_are_concatenated(tmp_path: Path, read: Read) -> None:
    for part in (2, 1):
        np.savez(tmp_path / f"part{part}.npz", x=np.full((3, 2, 5), part, "float32"), y=np.zeros(3))
    result, worst = read(npz={"path": ["part*.npz"]})
    assert result == Scan(samples=6, read=6, lengths=((2, 6),), ranges={"targets.": (0, 0)}, sequences=("inputs.",))
    assert [float(inputs[0, 0]) for inputs, _ in worst] == [1, 1, 1, 2, 2, 2]


def test_npy_files_are_read_by_the_names_of_inputs(tmp_path: Path, read: Read) -> None:
    np.save(tmp_path / "ids.npy", np.array([[3, 4, 0], [1, 0, 0]]))
    np.save(tmp_path / "age.npy", np.array([[0.5], [0.25]], "float32"))
    np.save(tmp_path / "y.npy", np.array([1, 0]))
    result, worst = read(npy={"inputs": {"age": "age.npy", "ids": "ids.npy"}, "targets": "y.npy"})
    assert result.lengths == ((1, 1), (2, 1))
    assert worst[0][0]["ids"].tolist() == [3, 4, 0]
    assert worst[0][0]["age"].tolist() == [0.5]


def test_worst_samples_are_kept_up_to_a_total_size(tmp_path: Path, read: Read) -> None:
    np.save(tmp_path / "x.npy", np.zeros((100, 8), "float32"))
    np.save(tmp_path / "y.npy", np.arange(100.0, dtype="float32"))
    section = {"npy": {"inputs": "x.npy", "targets": "y.npy"}}
    result, worst = read(**section)
    assert (result.lengths, len(worst)) == ((), 64)
    assert [float(targets) for _, targets in worst[:3]] == [0, 1, 2]
    assert len(read(Bounds(worst_bytes=100), **section)[1]) == 2
    assert len(read(Bounds(worst_bytes=1), **section)[1]) == 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": [[1.0, np.nan]], "y": [1]}, "a.npz: 'x' is NaN in row 0, at [1]"),
        ({"x": [[1.0], [np.inf]], "y": [1, 1]}, "a.npz: 'x' is infinite in row 1"),
        ({"x": [[1.0], [2.0]], "y": [1]}, "'x' has 2 samples and 'y' has 1"),
        ({"x": np.zeros((0, 3)), "y": np.zeros(0)}, "'x' holds no samples"),
        ({"x": 3.0, "y": [1]}, "'x' is a single number"),
        ({"x": ["a", "b"], "y": [1, 2]}, "has the type <U1, not numbers"),
        ({"x": np.array([{}, {}], dtype=object), "y": [1, 2]}, "'x' can't be read: Object arrays cannot be loaded"),
        ({"inputs_x": [1], "y": [1]}, "a.npz has no array 'x' (dataset.npz.inputs) | it has: inputs_x, y"),
        ({"x": [1], "yy": [1]}, "has no array 'y' (dataset.npz.targets) | did you mean 'yy'? it has: x, yy"),
    ],
)
def test_unusable_arrays_are_reported_by_name(
    tmp_path: Path, refused: Callable[..., str], arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    assert message in refused(npz={"path": "a.npz"})


def test_truncated_array_files_and_wrong_formats_are_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((50, 3)), y=np.zeros(50))
    np.save(tmp_path / "a.npy", np.zeros((50, 3)))
    np.save(tmp_path / "b.npy", np.zeros((50, 4)))
    assert "is an .npz archive (dataset.npy.inputs)" in refused(npy={"inputs": "a.npz", "targets": "a.npy"})
    assert "a.npy is not an .npz archive" in refused(npz={"path": "a.npy"})
    # Mark the entries as packed with a compression that Python does not know.
    packed = (tmp_path / "a.npz").read_bytes()
    for header, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        packed = b"".join(
            (header + part[: at - 4] + b"c" + part[at - 3 :]) if place else part
            for place, part in enumerate(packed.split(header))
        )
    (tmp_path / "c.npz").write_bytes(packed)
    assert "c.npz: 'x' can't be read: " in refused(npz={"path": "c.npz"})
    assert "b.npy: the array has samples of shape [4], but" in refused(
        npy={"inputs": ["a.npy", "b.npy"], "targets": "a.npy"}
    )
    for name, section in (
        ("a.npz", {"npz": {"path": "a.npz"}}),
        ("a.npy", {"npy": {"inputs": "a.npy", "targets": "b.npy"}}),
    ):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:700])
        assert f"{name}" in (message := refused(**section))
        assert "can't be read" in message


def arrays(path: Path, **replaced: Any) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.random((100, 64), dtype="float32"), generator.random((100, 1), dtype="float32")
    np.savez(path, **{"x": x, "y": y, **replaced})


def test_a_probe_trains_on_an_npz_archive(cli: Cli, spec_file: Callable[..., Path]) -> None:
    arrays(cli.folder / "data.npz")
    ran = cli("probe", spec_file(dataset={"npz": {"path": "data.npz"}}, search__batch_size=[32, 64]), "--json")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"y": np.array([{"an": "object"}] * 100, dtype=object)}, "'y' can't be read: Object arrays cannot be loaded"),
        ({"y": np.zeros((99, 1), dtype="float32")}, "has 100 samples and 'y' has 99"),
        ({"x": np.zeros((0, 64), dtype="float32"), "y": np.zeros((0, 1), dtype="float32")}, "holds no samples"),
        ({"y": np.float32(1)}, "is a single number"),
    ],
)
def test_unusable_arrays_end_a_probe_and_are_never_unpickled(
    cli: Cli, spec_file: Callable[..., Path], contents: dict[str, Any], message: str
) -> None:
    arrays(cli.folder / "data.npz", **contents)
    ran = cli("probe", spec_file(dataset={"npz": {"path": "data.npz"}}), "--json")
    assert ran.code == 6
    assert message in ran.document["error"]["message"]
    assert "Traceback" not in ran.err


def test_an_npz_without_an_array_or_cut_short_ends_a_probe(cli: Cli, spec_file: Callable[..., Path]) -> None:
    path = cli.folder / "data.npz"
    arrays(path)
    ran = cli("probe", spec_file(dataset={"npz": {"path": "data.npz", "targets": "labels"}}), "--json")
    assert (ran.code, ran.document["error"]["hint"]) == (6, "it has: x, y")
    path.write_bytes(path.read_bytes()[:1000])
    ran = cli("probe", spec_file(dataset={"npz": {"path": "data.npz"}}), "--json")
    assert ran.code == 6
    assert "can't be read" in ran.document["error"]["message"]
