"""Data from the user's own function: pipelines, arrays and refused return values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from oomtune.commands.scan import describe_scan
from oomtune.domain import ENDLESS
from oomtune.errors import DataUnreadable, TrialCrashed
from oomtune.worker.data import open_source, worst_samples
from oomtune.worker.data.source import Bounds, HeldArrays
from oomtune.worker.process.exceptions import to_raised_error
from tests.support.reading import Read
from tests.support.specs import small_probe_spec

MODULE = """
import numpy as np
import tensorflow as tf

ragged = tf.ragged.constant([[1, 2], [3], [4, 5, 6]])

def pipeline(): return tf.data.Dataset.from_tensor_slices((ragged, [0, 1, 1]))
def padded(): return tf.data.Dataset.from_tensor_slices(([[1, 0, 0], [2, 3, 0]], [0, 1]))
def by_name(): return tf.data.Dataset.from_tensor_slices(({"a": np.zeros((4, 2), "f")}, {"out": np.zeros((4, 1), "f")}))
def endless(): return pipeline().repeat()
def counted_by_nobody(): return endless().take(50).filter(lambda tokens, label: True)
def arrays(): return np.array([[1, 2, 0], [3, 0, 0]]), {"y": np.array([0.5, 1])}
def ragged_arrays(): return ragged, np.array([0, 1, 2])
def strings(): return np.array(["c", "a b"]), np.array([0, 1])
def objects(): return np.array(["é b", b"c"], dtype=object), np.array([0, 1])
def string_pipeline(): return tf.data.Dataset.from_tensor_slices((["a b", "c"], [0, 1]))
def one_text(): return tf.constant("a"), np.array([0, 1])
def halves(): return pipeline().map(lambda tokens, label: (tf.cast(tokens, tf.bfloat16), label))
def mixed_objects(): return np.array(["a", None], dtype=object), np.array([0, 1])
def deep(): return tf.data.Dataset.from_tensors((tf.ragged.constant([[1, 2], [3]]), 1))
def empty(): return tf.data.Dataset.from_tensor_slices((np.zeros((0, 2)), np.zeros(0)))
def nothing(): pass
def needs_more(split): pass
def leaves(): raise SystemExit(3)
def lists(): return [[1, 2], [3, 4]]
def no_targets(): return np.zeros(3), {}
def four(): return tf.data.Dataset.from_tensors((1, 2, 3, 4))
def sparse(): return tf.data.Dataset.from_tensors((tf.sparse.eye(2), 3))
def uneven_weights(): return (np.zeros(2), np.zeros(2)), np.zeros(2), np.zeros(3)
def nan_weights(): return tf.data.Dataset.from_tensors((1, 2, float("nan")))
def several(): return tf.data.Dataset.from_tensor_slices(((ragged, [[1.0], [2.0], [3.0]]), {"y": (ragged, [0, 1, 2])}, [1.0, 2.0, 0.5]))
def weighted_arrays(): return [np.array([[1, 2, 0], [3, 0, 0]]), np.ones((2, 4), "float32")], np.ones((2, 3)), np.ones((2, 3), "float32")
def uneven(): return np.zeros(3), np.zeros(4)
def uneven_ragged(): return ragged, np.zeros(4)
def nan(): return tf.data.Dataset.from_tensor_slices(([1.0, float("nan")], [0, 1]))
def fails():
    def generate():
        yield 1.0, 2.0
        raise RuntimeError("my data is broken")
    return tf.data.Dataset.from_generator(generate, output_types=(tf.float32, tf.float32), output_shapes=((), ()))
def differing():
    def generate():
        yield [[1.0, 2.0]], 2.0
        yield [[1.0]], 2.0
    return tf.data.Dataset.from_generator(generate, output_types=(tf.float32, tf.float32))
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.delitem(__import__("sys").modules, "my_data", raising=False)
    (tmp_path / "my_data.py").write_text(MODULE)


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("function", "lengths", "count"),
    [
        ("pipeline", ((1, 1), (2, 1), (3, 1)), 3),
        ("padded", ((1, 1), (2, 1)), 2),
        ("by_name", (), 4),
        ("arrays", ((1, 1), (2, 1)), 2),
        ("ragged_arrays", ((1, 1), (2, 1), (3, 1)), 3),
        ("strings", (), 2),
        ("objects", (), 2),
        ("string_pipeline", (), 2),
        ("deep", (), 1),
    ],
)
def test_a_function_may_return_a_pipeline_or_arrays(
    tmp_path: Path, read: Read, dataset: Any, function: str, lengths: Any, count: int
) -> None:
    result, worst = read(python=f"my_data:{function}")
    assert (result.lengths, result.samples, len(worst)) == (lengths, count, count)
    source = open_source(dataset(python=f"my_data:{function}"), str(tmp_path))
    if isinstance(source, HeldArrays):
        first = source.arrays
    else:
        assert source.pipeline is not None, "training runs it"
        first, _ = next(iter(source.samples))
    assert all(array.dtype.kind != "O" for array in first if not isinstance(array, dict)), "nothing is pickled"


@pytest.mark.usefixtures("functions")
def test_several_inputs_and_sample_weights_keep_their_nesting(tmp_path: Path, read: Read) -> None:
    result, samples = read(python="my_data:several")
    assert result.sequences == ("inputs.0", "targets.y.0")
    assert result.ranges == {"inputs.0": (1, 6), "targets.y.0": (1, 6), "targets.y.1": (0, 2)}
    worst_samples.save(samples, result.sequences, tmp_path / "rows.npz")
    (tokens, about), targets, weights = worst_samples.load(tmp_path / "rows.npz").at(2, 4)
    assert tokens.tolist() == targets["y"][0].tolist() == [[4, 5, 6, 0], [1, 2, 0, 0]]
    assert (about.tolist(), targets["y"][1].tolist(), weights.tolist()) == ([[3.0], [1.0]], [2, 0], [0.5, 1.0])

    result, samples = read(python="my_data:weighted_arrays")
    assert (result.lengths, result.sequences) == (((1, 1), (2, 1)), ("inputs.0", "weights.")), "a weight for each step"
    worst_samples.save(samples, result.sequences, tmp_path / "rows.npz")
    sides = worst_samples.load(tmp_path / "rows.npz").at(2, 2)
    assert [part.shape for part in tf.nest.flatten(sides)] == [(2, 2), (2, 4), (2, 3), (2, 2)]


@pytest.mark.usefixtures("functions")
def test_bfloat16_survives_the_numpy_file(tmp_path: Path, read: Read) -> None:
    result, samples = read(python="my_data:halves")
    worst_samples.save(samples, result.sequences, tmp_path / "rows.npz")
    inputs, _ = worst_samples.load(tmp_path / "rows.npz").at(2, 4)
    assert (tf.constant(inputs).dtype, inputs.tolist()) == (tf.bfloat16, [[4, 5, 6, 0], [1, 2, 0, 0]])


@pytest.mark.usefixtures("functions")
def test_arrays_of_text_are_ranked_by_their_words(read: Read) -> None:
    assert [inputs.item() for inputs, _ in read(python="my_data:strings")[1]] == ["a b", "c"]


@pytest.mark.usefixtures("functions")
def test_an_endless_pipeline_is_read_up_to_a_bound(read: Read) -> None:
    result = read(Bounds(endless=100), python="my_data:endless")[0]
    assert (result.read, result.samples) == (100, ENDLESS), "its end bounds no batch"


@pytest.mark.usefixtures("functions")
def test_a_pipeline_of_unknown_length_has_at_least_what_was_read(read: Read) -> None:
    result = read(Bounds(samples=30), python="my_data:counted_by_nobody")[0]
    assert (result.read, result.samples, result.all_read) == (30, 30, False)
    (notice, *_) = describe_scan(dataclasses.replace(small_probe_spec(), scan=result))
    assert notice.startswith("data: at least 30 samples; lengths 1 to 3")
    assert "30 of them were read, so lengths are estimates" in notice
    assert read(Bounds(samples=51), python="my_data:counted_by_nobody")[0].all_read


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "my_data:nothing returned a NoneType"),
        ("lists", "returned an int as inputs.0"),
        ("no_targets", "my_data:no_targets returned a dict of 0 as targets"),
        (
            "four",
            "each element of the dataset of my_data:four is a tuple of 4, not (inputs, targets) | map each element to a pair",
        ),
        ("sparse", "the inputs of my_data:sparse are a SparseTensorSpec, not tensors | map them to a tensor"),
        ("uneven_weights", "'inputs.0' has 2 samples and 'weights' has 3"),
        ("nan_weights", "sample 1: 'weights' is NaN (dataset.python)"),
        ("one_text", "my_data:one_text: inputs is a single number, not one entry per sample"),
        ("mixed_objects", "inputs has the type object, not numbers"),
        ("uneven", "'inputs' has 3 samples and 'targets' has 4"),
        ("uneven_ragged", "my_data:uneven_ragged: 'inputs' has 3 samples and 'targets' has 4"),
        ("empty", "dataset.python (my_data:empty) holds no samples | run the pipeline by itself to see why"),
        ("nan", "dataset.python (my_data:nan), sample 2: 'inputs' is NaN (dataset.python) |"),
        ("fails", "(my_data:fails) failed after 0 samples or a few more: RuntimeError: my data is broken |"),
        ("needs_more", "dataset.python: my_data:needs_more needs 'split' | it is called without arguments"),
        ("leaves", "dataset.python: my_data:leaves ended the process: sys.exit(3)"),
        ("differing", "sample 2: 'inputs' has the shape [1, 1], earlier samples have [1, 2]"),
    ],
)
def test_unusable_returns_of_a_function_are_reported(refused: Callable[..., str], function: str, message: str) -> None:
    assert message in refused(python=f"my_data:{function}")


@pytest.mark.usefixtures("functions")
def test_a_failing_pipeline_shows_the_users_own_lines(read: Read) -> None:
    with pytest.raises(DataUnreadable) as failed:
        read(python="my_data:fails")
    shown = to_raised_error(failed.value).traceback
    assert 'my_data.py", line' in shown
    assert "site-packages" not in shown


@pytest.mark.usefixtures("functions")
def test_a_missing_function_is_reported(read: Read) -> None:
    with pytest.raises(TrialCrashed, match=r"dataset.python: my_data has no function 'none'"):
        read(python="my_data:none")
