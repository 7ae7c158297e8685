"""Arrays, images and functions of one's own are read, and every way they can be broken is said with its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from oomtune.commands.scan import describe_scan
from oomtune.domain import ENDLESS, Scan
from oomtune.errors import DataUnreadable, TrialCrashed
from oomtune.worker.data import open_source, worst_samples
from oomtune.worker.data.source import Bounds, HeldArrays
from oomtune.worker.process.exceptions import to_raised_error
from tests.support.reading import Read
from tests.support.specs import small_probe_spec

# --- arrays


def test_whole_arrays_are_held_and_padding_does_not_count(tmp_path: Path, read: Read, dataset: Any) -> None:
    x = np.array([[0, 0, 0, 0], [5, 0, 7, 0], [1, 2, 3, 4], [9, 9, 0, 0]])
    np.savez(tmp_path / "a.npz", x=x, y=np.array([0, 1, 2, 1]))
    found, worst = read(npz={"path": "a.npz"})
    assert found == Scan(
        samples=4,
        read=4,
        lengths=((1, 1), (2, 1), (3, 1), (4, 1)),
        ranges={"inputs.": (0, 9), "targets.": (0, 2)},
        sequences=("inputs.",),
    )
    assert [inputs.tolist() for inputs, _ in worst] == [x[2].tolist(), x[1].tolist(), x[3].tolist(), x[0].tolist()]
    assert worst[0][0].base is None, "a sample that is kept does not keep the whole array"
    source = open_source(dataset(npz={"path": "a.npz"}), str(tmp_path))
    assert isinstance(source, HeldArrays)
    assert source.arrays[0].shape == (4, 4)


def test_archives_of_a_pattern_are_read_one_after_the_other(tmp_path: Path, read: Read) -> None:
    for part in (2, 1):
        np.savez(tmp_path / f"part{part}.npz", x=np.full((3, 2, 5), part, "float32"), y=np.zeros(3))
    found, worst = read(npz={"path": ["part*.npz"]})
    assert found == Scan(samples=6, read=6, lengths=((2, 6),), ranges={"targets.": (0, 0)}, sequences=("inputs.",))
    assert [float(inputs[0, 0]) for inputs, _ in worst] == [1, 1, 1, 2, 2, 2]


def test_npy_files_are_arrays_by_the_names_of_inputs(tmp_path: Path, read: Read) -> None:
    np.save(tmp_path / "ids.npy", np.array([[3, 4, 0], [1, 0, 0]]))
    np.save(tmp_path / "age.npy", np.array([[0.5], [0.25]], "float32"))
    np.save(tmp_path / "y.npy", np.array([1, 0]))
    found, worst = read(npy={"inputs": {"age": "age.npy", "ids": "ids.npy"}, "targets": "y.npy"})
    assert found.lengths == ((1, 1), (2, 1))
    assert worst[0][0]["ids"].tolist() == [3, 4, 0]
    assert worst[0][0]["age"].tolist() == [0.5]


def test_only_as_many_worst_samples_are_kept_as_fit_together(tmp_path: Path, read: Read) -> None:
    np.save(tmp_path / "x.npy", np.zeros((100, 8), "float32"))
    np.save(tmp_path / "y.npy", np.arange(100.0, dtype="float32"))
    section = {"npy": {"inputs": "x.npy", "targets": "y.npy"}}
    found, worst = read(**section)
    assert (found.lengths, len(worst)) == ((), 64)
    assert [float(targets) for _, targets in worst[:3]] == [0, 1, 2]
    assert len(read(Bounds(worst_bytes=100), **section)[1]) == 2
    assert len(read(Bounds(worst_bytes=1), **section)[1]) == 1


@pytest.mark.parametrize(
    ("arrays", "said"),
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
def test_arrays_that_cannot_be_used(
    tmp_path: Path, refused: Callable[..., str], arrays: dict[str, Any], said: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    assert said in refused(npz={"path": "a.npz"})


def test_array_files_that_are_cut_short_or_of_another_kind(tmp_path: Path, refused: Callable[..., str]) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((50, 3)), y=np.zeros(50))
    np.save(tmp_path / "a.npy", np.zeros((50, 3)))
    np.save(tmp_path / "b.npy", np.zeros((50, 4)))
    assert "is an .npz archive (dataset.npy.inputs)" in refused(npy={"inputs": "a.npz", "targets": "a.npy"})
    assert "a.npy is not an .npz archive" in refused(npz={"path": "a.npy"})
    # The method that its entries say they are packed with is one that Python does not know.
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


# --- a function of the user's

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
    ("function", "lengths", "kept"),
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
def test_a_function_returns_a_pipeline_or_arrays(
    tmp_path: Path, read: Read, dataset: Any, function: str, lengths: Any, kept: int
) -> None:
    found, worst = read(python=f"my_data:{function}")
    assert (found.lengths, found.samples, len(worst)) == (lengths, kept, kept)
    source = open_source(dataset(python=f"my_data:{function}"), str(tmp_path))
    if isinstance(source, HeldArrays):
        first = source.arrays
    else:
        assert source.pipeline is not None, "training runs it"
        first = next(iter(source.samples))
    assert all(array.dtype.kind != "O" for array in first if not isinstance(array, dict)), "nothing is pickled"


@pytest.mark.usefixtures("functions")
def test_several_inputs_and_sample_weights_are_kept_as_the_function_nests_them(tmp_path: Path, read: Read) -> None:
    found, samples = read(python="my_data:several")
    assert found.sequences == ("inputs.0", "targets.y.0")
    assert found.ranges == {"inputs.0": (1, 6), "targets.y.0": (1, 6), "targets.y.1": (0, 2)}
    worst_samples.save(samples, found.sequences, tmp_path / "rows.npz")
    (tokens, about), targets, weights = worst_samples.load(tmp_path / "rows.npz").at(2, 4)
    assert tokens.tolist() == targets["y"][0].tolist() == [[4, 5, 6, 0], [1, 2, 0, 0]]
    assert (about.tolist(), targets["y"][1].tolist(), weights.tolist()) == ([[3.0], [1.0]], [2, 0], [0.5, 1.0])

    found, samples = read(python="my_data:weighted_arrays")
    assert (found.lengths, found.sequences) == (((1, 1), (2, 1)), ("inputs.0", "weights.")), "a weight for each step"
    worst_samples.save(samples, found.sequences, tmp_path / "rows.npz")
    sides = worst_samples.load(tmp_path / "rows.npz").at(2, 2)
    assert [part.shape for part in tf.nest.flatten(sides)] == [(2, 2), (2, 4), (2, 3), (2, 2)]


@pytest.mark.usefixtures("functions")
def test_a_type_that_numpy_files_do_not_know_stays_what_it_is(tmp_path: Path, read: Read) -> None:
    found, samples = read(python="my_data:halves")
    worst_samples.save(samples, found.sequences, tmp_path / "rows.npz")
    inputs, _ = worst_samples.load(tmp_path / "rows.npz").at(2, 4)
    assert (tf.constant(inputs).dtype, inputs.tolist()) == (tf.bfloat16, [[4, 5, 6, 0], [1, 2, 0, 0]])


@pytest.mark.usefixtures("functions")
def test_of_arrays_of_text_the_most_words_are_the_worst(read: Read) -> None:
    assert [inputs.item() for inputs, _ in read(python="my_data:strings")[1]] == ["a b", "c"]


@pytest.mark.usefixtures("functions")
def test_a_pipeline_without_end_is_read_for_a_while(read: Read) -> None:
    found = read(Bounds(endless=100), python="my_data:endless")[0]
    assert (found.read, found.samples) == (100, ENDLESS), "its end bounds no batch"


@pytest.mark.usefixtures("functions")
def test_a_pipeline_that_does_not_know_its_length_is_said_to_have_more_than_was_read(read: Read) -> None:
    found = read(Bounds(samples=30), python="my_data:counted_by_nobody")[0]
    assert (found.read, found.samples, found.all_read) == (30, 30, False)
    (notice, *_) = describe_scan(dataclasses.replace(small_probe_spec(), scan=found))
    assert notice.startswith("data: at least 30 samples; lengths 1 to 3")
    assert "30 of them were read, so lengths are estimates" in notice
    assert read(Bounds(samples=51), python="my_data:counted_by_nobody")[0].all_read


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("function", "said"),
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
def test_what_a_function_may_not_return(refused: Callable[..., str], function: str, said: str) -> None:
    assert said in refused(python=f"my_data:{function}")


@pytest.mark.usefixtures("functions")
def test_a_pipeline_that_fails_shows_the_users_own_lines(read: Read) -> None:
    with pytest.raises(DataUnreadable) as failed:
        read(python="my_data:fails")
    shown = to_raised_error(failed.value).traceback
    assert 'my_data.py", line' in shown
    assert "site-packages" not in shown


@pytest.mark.usefixtures("functions")
def test_a_function_that_is_not_there_is_named(read: Read) -> None:
    with pytest.raises(TrialCrashed, match=r"dataset.python: my_data has no function 'none'"):
        read(python="my_data:none")


# --- what vanished since


def test_a_file_that_vanished_after_the_spec_was_read_is_said_so(tmp_path: Path, dataset: Any) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    spec = dataset(text={"path": "a.txt"})
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataUnreadable, match=r"dataset.text.path: no such file: .*a\.txt"):
        open_source(spec, str(tmp_path))
