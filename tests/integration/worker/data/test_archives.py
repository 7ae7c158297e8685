"""Archives of arrays, through the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cli import Cli


def arrays(path: Path, **kept: Any) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.random((100, 64), dtype="float32"), generator.random((100, 1), dtype="float32")
    np.savez(path, **{"x": x, "y": y, **kept})


def test_an_npz_archive_feeds_the_trials(cli: Cli, spec_file: Callable[..., Path]) -> None:
    arrays(cli.folder / "data.npz")
    ran = cli("probe", spec_file(dataset={"npz": {"path": "data.npz"}}, search__batch_size=[32, 64]), "--json")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ({"y": np.array([{"an": "object"}] * 100, dtype=object)}, "'y' can't be read: Object arrays cannot be loaded"),
        ({"y": np.zeros((99, 1), dtype="float32")}, "has 100 samples and 'y' has 99"),
        ({"x": np.zeros((0, 64), dtype="float32"), "y": np.zeros((0, 1), dtype="float32")}, "holds no samples"),
        ({"y": np.float32(1)}, "is a single number"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused_and_never_unpickled(
    cli: Cli, spec_file: Callable[..., Path], contents: dict[str, Any], said: str
) -> None:
    arrays(cli.folder / "data.npz", **contents)
    ran = cli("probe", spec_file(dataset={"npz": {"path": "data.npz"}}), "--json")
    assert ran.code == 6
    assert said in ran.document["error"]["message"]
    assert "Traceback" not in ran.err


def test_an_npz_that_lacks_an_array_or_is_cut_short_says_so(cli: Cli, spec_file: Callable[..., Path]) -> None:
    path = cli.folder / "data.npz"
    arrays(path)
    ran = cli("probe", spec_file(dataset={"npz": {"path": "data.npz", "targets": "labels"}}), "--json")
    assert (ran.code, ran.document["error"]["hint"]) == (6, "it has: x, y")
    path.write_bytes(path.read_bytes()[:1000])
    ran = cli("probe", spec_file(dataset={"npz": {"path": "data.npz"}}), "--json")
    assert ran.code == 6
    assert "can't be read" in ran.document["error"]["message"]
