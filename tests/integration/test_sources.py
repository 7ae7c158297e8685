"""Every kind of data is read from real files, and every way it can be broken is said with its place."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import TypeAdapter

from oomtune.domain import ENDLESS, DatasetSpec, Scan
from oomtune.errors import DataUnreadable, TrialCrashed
from oomtune.spec.data_schema import Dataset
from oomtune.spec.dataset import dataset_spec, wrong_in_dataset
from oomtune.worker.sources import Bounds, Sample, open_source, scan

Read = Callable[..., tuple[Scan, list[Sample]]]


@pytest.fixture
def dataset(tmp_path: Path) -> Callable[..., DatasetSpec]:
    """A `dataset` section past the border and through the pipe to the worker."""

    def made(**section: Any) -> DatasetSpec:
        assert list(wrong_in_dataset(section, tmp_path)) == []
        adapter = TypeAdapter(DatasetSpec)
        spec = dataset_spec(Dataset.model_validate(section))
        assert adapter.validate_json(adapter.dump_json(spec)) == spec
        return spec

    return made


@pytest.fixture
def read(tmp_path: Path, dataset: Callable[..., DatasetSpec]) -> Read:
    def run(bounds: Bounds | None = None, **section: Any) -> tuple[Scan, list[Sample]]:
        return scan(dataset(**section), str(tmp_path), lambda count, share: None, bounds)

    return run


@pytest.fixture
def refused(read: Read) -> Callable[..., str]:
    def run(**section: Any) -> str:
        with pytest.raises(DataUnreadable) as caught:
            read(**section)
        assert caught.value.hint
        return f"{caught.value} | {caught.value.hint}"

    return run


def shapes(samples: list[Sample]) -> list[tuple[Any, Any]]:
    return [(inputs.shape, targets.shape) for inputs, targets in samples]


# --- arrays


def test_whole_arrays_are_held_and_padding_does_not_count(tmp_path: Path, read: Read, dataset: Any) -> None:
    x = np.array([[0, 0, 0, 0], [5, 0, 7, 0], [1, 2, 3, 4], [9, 9, 0, 0]])
    np.savez(tmp_path / "a.npz", x=x, y=np.array([0, 1, 2, 1]))
    found, worst = read(npz={"path": "a.npz"})
    assert found == Scan(
        samples=4,
        read=4,
        lengths=((1, 1), (2, 1), (3, 1), (4, 1)),
        largest_input=9,
        largest_target=2,
        sequences=("inputs.",),
    )
    assert [inputs.tolist() for inputs, _ in worst] == [x[2].tolist(), x[1].tolist(), x[3].tolist(), x[0].tolist()]
    assert worst[0][0].base is None, "a sample that is kept does not keep the whole array"
    source = open_source(dataset(npz={"path": "a.npz"}), str(tmp_path))
    assert source.held is not None
    assert source.held[0].shape == (4, 4)
    assert [int(targets) for _, targets in source.samples] == [0, 1, 2, 1]
    assert (source.share_read(), source.partial()) == (1.0, None)


def test_archives_of_a_pattern_are_read_one_after_the_other(tmp_path: Path, read: Read) -> None:
    for part in (2, 1):
        np.savez(tmp_path / f"part{part}.npz", x=np.full((3, 2, 5), part, "float32"), y=np.zeros(3))
    found, worst = read(npz={"path": ["part*.npz"]})
    assert found == Scan(samples=6, read=6, lengths=((2, 6),), sequences=("inputs.",))
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
    assert "samples of the shape [4], and [3] in" in refused(npy={"inputs": ["a.npy", "b.npy"], "targets": "a.npy"})
    for name, section in (
        ("a.npz", {"npz": {"path": "a.npz"}}),
        ("a.npy", {"npy": {"inputs": "a.npy", "targets": "b.npy"}}),
    ):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:700])
        assert f"{name}" in (message := refused(**section))
        assert "can't be read" in message


# --- csv


def test_columns_become_a_vector_and_class_names_numbers(tmp_path: Path, read: Read) -> None:
    (tmp_path / "b.csv").write_text("label,age,income\ndog,3,30\n")
    (tmp_path / "a.csv").write_text("\ufeffage,income,label,note\n1,10,cat,x\n\n2,2e1,dog,\n")
    found, worst = read(csv={"path": "*.csv", "inputs": ["age", "income"], "targets": "label"})
    assert found == Scan(samples=3, read=3, largest_target=1)
    assert [inputs.tolist() for inputs, _ in worst] == [[1, 10], [2, 20], [3, 30]]
    assert [(int(targets), targets.dtype) for _, targets in worst] == [(0, "int32"), (1, "int32"), (1, "int32")]
    assert worst[0][0].dtype == "float32"


def test_text_columns_become_tokens_and_the_longest_come_first(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.csv").write_text('review;stars;age\n"so; so";1.5;7\none two three;4;8\n')
    section = {"path": "a.csv", "inputs": {"words": "review", "age": "age"}, "targets": "stars", "text": ["review"]}
    found, worst = read(csv={**section, "delimiter": ";"}, tokenizer={"max": 50})
    assert found.lengths == ((2, 1), (3, 1))
    ids = [1 + zlib.crc32(word) % 49 for word in (b"one", b"two", b"three")]
    assert worst[0][0]["words"].tolist() == ids
    assert worst[0][0]["words"].dtype == "int32"
    assert worst[0][0]["age"] == 8
    assert [float(targets) for _, targets in worst] == [4, 1.5]
    assert {str(targets.dtype) for _, targets in worst} == {"float32"}


def test_a_late_fraction_makes_all_targets_fractions(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 1500 + "1,2.5\n")
    found, worst = read(csv={"path": "a.csv", "inputs": "x", "targets": "y"})
    assert found.largest_target is None
    assert worst[0][1].dtype == "float32"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age,incme,label\n1,2,3\n", "a.csv has no column 'income' (dataset.csv.inputs) | did you mean 'incme'?"),
        ("age,income,kind\n1,2,3\n", "a.csv has no column 'label' (dataset.csv.targets) | it has: age, income, kind"),
        ("age,income,label\n1,2,3\n1,nan,3\n", "a.csv:3: 'income' is NaN (dataset.csv.inputs)"),
        ("age,income,label\n1e39,2,3\n", "a.csv:2: 'age' is infinite (dataset.csv.inputs)"),
        ("age,income,label\n1,2,3\n1,2,inf\n", "a.csv:3: 'label' is infinite (dataset.csv.targets)"),
        ("age,income,label\n1,two,3\n", "a.csv:2: column 'income' is 'two', not a number (dataset.csv.inputs)"),
        ("age,income,label\n1,,3\n", "a.csv:2: column 'income' is empty"),
        ("age,income,label\n1,2,3\n1,2,x\n1,2,3\n", "a.csv:3: column 'label' is 'x', not a number"),
        ("age,income,label\n1,2\n", "a.csv:2: 2 cells in this row, 3 in the header"),
        ('age,income,label\n1,2,"3\n', "a.csv:2 can't be read: unexpected end of data"),
        ("age,age,income,label\n1,1,2,3\n", "has the column 'age' twice"),
        ("age,income,label\n", "a.csv holds no samples"),
        ("", "a.csv is empty"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, refused: Callable[..., str], text: str, said: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert said in refused(csv={"path": "a.csv", "inputs": ["age", "income"], "targets": "label"})


def test_a_table_in_another_encoding_is_said_with_its_line(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n1,caf\xe9\n")
    assert "a.csv:3 can't be read: byte 6 of the line is not UTF-8" in refused(
        csv={"path": "a.csv", "inputs": "x", "targets": "y"}
    )


# --- jsonl


def write_jsonl(path: Path, *rows: Any) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_list_of_whole_numbers_is_tokens(tmp_path: Path, read: Read) -> None:
    write_jsonl(
        tmp_path / "a.jsonl",
        {"tokens": [4, 0], "label": "neg"},
        {"tokens": [7, 8, 9], "label": "pos"},
        {"tokens": [], "label": "neg"},
    )
    found, worst = read(jsonl={"path": "a.jsonl", "inputs": "tokens", "targets": "label"})
    assert found == Scan(
        samples=3, read=3, lengths=((1, 1), (2, 1), (3, 1)), largest_input=9, largest_target=1, sequences=("inputs.",)
    )
    assert [(inputs.tolist(), int(targets)) for inputs, targets in worst] == [([7, 8, 9], 1), ([4, 0], 0), ([], 0)]
    assert {str(inputs.dtype) for inputs, _ in worst} == {"int32"}


def test_text_arrays_vectors_and_numbers_can_be_fields(tmp_path: Path, read: Read) -> None:
    write_jsonl(
        tmp_path / "a.jsonl",
        {"text": "a b c", "grid": [[1, 2], [3, 4]], "a": 1, "b": 2, "out": "x y"},
        {"text": "a", "grid": [[1, 2.5]], "a": 3, "b": 4, "out": "z"},
    )
    inputs = {"t": "text", "g": "grid", "v": ["a", "b"], "n": "a"}
    found, worst = read(jsonl={"path": "a.jsonl", "inputs": inputs, "targets": "out", "text": ["out"]})
    assert found.lengths == ((1, 1), (3, 1))
    first, targets = worst[0]
    assert (first["t"].shape, first["g"].shape, first["v"].tolist(), int(first["n"])) == ((3,), (2, 2), [1, 2], 1)
    assert (str(first["g"].dtype), str(first["v"].dtype), str(first["n"].dtype)) == ("float32", "float32", "int32")
    assert (targets.shape, targets.dtype) == ((2,), "int32")


def test_a_list_of_fractions_has_a_length_only_if_lengths_differ(tmp_path: Path, read: Read) -> None:
    section = {"path": "a.jsonl", "inputs": "x", "targets": "y"}
    write_jsonl(tmp_path / "a.jsonl", {"x": [1, 2], "y": 0.5}, {"x": [0.5, 1], "y": 1})
    assert read(jsonl=section)[0].lengths == ()
    write_jsonl(tmp_path / "a.jsonl", {"x": [1.5, 2], "y": 0.5}, {"x": [0.5], "y": 1})
    assert read(jsonl=section)[0].lengths == ((1, 1), (2, 1))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"x": [1], "y": 1}\n{"x": [1], "y"', "a.jsonl:2: the last line is cut short"),
        ('{"x": [1], "y": 1}\nhello\n', "a.jsonl:2: not JSON"),
        ("[1, 2]\n", "a.jsonl:1: expected a JSON object, found [1, 2]"),
        ('{"xx": [1], "y": 1}\n', "a.jsonl:1 has no field 'x' (dataset.jsonl.inputs) | did you mean 'xx'?"),
        ('{"x": [1.0, NaN], "y": 1}\n', "a.jsonl:1: 'x' is NaN (dataset.jsonl.inputs)"),
        ('{"x": [1], "y": Infinity}\n', "a.jsonl:1: 'y' is infinite (dataset.jsonl.targets)"),
        ('{"x": [[1, 2], [3]], "y": 1}\n', "field 'x' holds lists of differing lengths (dataset.jsonl.inputs)"),
        ('{"x": ["a", "b"], "y": 1}\n', "field 'x' is neither a number, nor a list of numbers, nor a text"),
        ('{"x": null, "y": 1}\n', "field 'x' is neither a number"),
        ('{"x": {"a": 1}, "y": 1}\n', "field 'x' is neither a number"),
        ('{"x": [4294967296], "y": 1}\n', "field 'x' holds a number beyond 32 bits"),
        ('{"x": [1180591620717411303424], "y": 1}\n', "field 'x' holds a number beyond 32 bits"),
        ('{"x": [1], "y": 1}\n{"x": 1, "y": 1}\n', "a.jsonl:2: 'x' has the shape [], earlier samples have [1]"),
        (
            '{"x": [[1, 2]], "y": 1}\n{"x": [[1]], "y": 1}\n',
            "a.jsonl:2: 'x' has the shape [1, 1], earlier samples have",
        ),
        ("\n\n", "a.jsonl holds no samples"),
        ("[" * 100_000 + "\n", "a.jsonl:1: not JSON"),
    ],
)
def test_json_lines_that_cannot_be_used(tmp_path: Path, refused: Callable[..., str], lines: str, said: str) -> None:
    (tmp_path / "a.jsonl").write_text(lines)
    assert said in refused(jsonl={"path": "a.jsonl", "inputs": "x", "targets": "y"})


def test_a_compressed_file_is_read_and_a_cut_one_refused(
    tmp_path: Path, read: Read, refused: Callable[..., str]
) -> None:
    path = tmp_path / "a.jsonl.gz"
    section = {"path": "a.jsonl.gz", "inputs": "x", "targets": "y"}
    generator = np.random.default_rng(0)
    rows = "".join(json.dumps({"x": generator.integers(0, 99, 20).tolist(), "y": 1}) + "\n" for _ in range(500))
    path.write_bytes(gzip.compress(rows.encode()))
    assert read(jsonl=section)[0].read == 500
    path.write_bytes(path.read_bytes()[:5000])
    assert "can't be read: Compressed file ended before" in refused(jsonl=section)


# --- text


def test_a_line_is_a_sample_and_each_token_has_its_successor_as_target(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.txt").write_text("one two three\n\n   \nalone\nfour five")
    found, worst = read(text={"path": "a.txt", "targets": "next"})
    assert found.lengths == ((1, 1), (2, 1))
    assert worst[0][0].tolist()[1:] == worst[0][1].tolist()[:-1]
    assert found.largest_input is not None
    assert found.largest_input < 20_000
    assert read(text={"path": "a.txt", "targets": "same"})[0].lengths == ((1, 1), (2, 1), (3, 1))


@pytest.mark.parametrize(("split", "length"), [("words", 2), ("characters", 5), ("bytes", 6)])
def test_text_is_split_as_asked(tmp_path: Path, read: Read, split: str, length: int) -> None:
    (tmp_path / "a.txt").write_text("né ok\n")
    targets = {"shape": ["sequence_length", 2], "dtype": "int32", "max": 3}
    found, worst = read(text={"path": "a.txt", "targets": targets}, tokenizer={"split": split, "max": 7})
    assert found.lengths == ((length, 1),)
    assert worst[0][1].shape == (length, 2)
    assert worst[0][0].min() >= 1
    assert worst[0][0].max() < 7


def test_a_text_vectorization_layer_learns_the_words_of_the_data(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.txt").write_text("The cat, the hat\na cat\n" * 300)
    layer: dict[str, Any] = {"max_tokens": 100}
    found, worst = read(text={"path": "a.txt", "targets": "same"}, tokenizer={"TextVectorization": layer})
    assert (found.read, found.lengths, found.largest_input) == (600, ((2, 300), (4, 300)), 5)
    assert worst[0][0].tolist()[0] == worst[0][0].tolist()[2]
    (tmp_path / "words.txt").write_text("cat\nhat\n")
    layer = {"vocabulary": "words.txt"}
    _, worst = read(text={"path": "a.txt", "targets": "same"}, tokenizer={"TextVectorization": layer})
    assert worst[0][0].tolist() == [1, 2, 1, 3]


def test_wrong_arguments_for_the_layer_are_said_with_their_key(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    layer = {"max_toks": 100}
    said = refused(text={"path": "a.txt"}, tokenizer={"TextVectorization": layer})
    assert said.startswith("dataset.tokenizer.TextVectorization: ")
    assert "max_toks" in said


def test_text_without_a_single_pair_of_tokens_holds_no_samples(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "a.txt").write_text("alone\nalone\n")
    assert "a.txt holds no samples" in refused(text={"path": "a.txt"})


# --- the bound of files of lines


def test_large_files_are_read_in_stretches_and_their_count_is_estimated(tmp_path: Path, read: Read) -> None:
    for part in range(3):
        rows = [{"x": [part, row % 7], "y": row} for row in range(1000)]
        write_jsonl(tmp_path / f"{part}.jsonl", *rows)
    section = {"path": "*.jsonl", "inputs": "x", "targets": "y"}
    whole = read(jsonl=section)[0]
    assert (whole.samples, whole.read) == (3000, 3000)
    found = read(Bounds(whole_bytes=10_000, stretches_bytes=20_000), jsonl=section)[0]
    assert 500 < found.read < 1000
    assert found.samples == pytest.approx(3000, rel=0.03)
    assert found.largest_target is not None
    assert found.largest_target > 850, "the stretches reach towards the end of a file"


def test_cells_with_line_ends_are_never_cut_in_two(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + '"one\ntwo\n3,4",1\n' * 2000)
    section = {"path": "a.csv", "inputs": "x", "targets": "y", "text": ["x"]}
    found = read(Bounds(whole_bytes=1000, stretches_bytes=5000), csv=section)[0]
    assert 200 < found.read < 400
    assert found.samples == pytest.approx(2000, rel=0.05)
    assert found.lengths == ((3, found.read),)


def test_progress_is_told_as_samples_are_read(tmp_path: Path, dataset: Any) -> None:
    (tmp_path / "a.txt").write_text("a b\n" * 3500)
    told: list[tuple[int, float]] = []
    scan(dataset(text={"path": "a.txt"}), str(tmp_path), lambda count, share: told.append((count, share)))
    assert [count for count, _ in told] == [1000, 2000, 3000, 3500]
    assert 0 < told[0][1] < told[-1][1] == 1.0


# --- tfrecord


def example(**features: Any) -> bytes:
    def feature(values: list[Any]) -> Any:
        if isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    made = {name: feature(values) if values else tf.train.Feature() for name, values in features.items()}
    text: bytes = tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()
    return text


def write_records(path: Path, *records: bytes, compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)


TOKENS = {"tokens": {"shape": [None], "dtype": "int64"}, "label": {"shape": [], "dtype": "int64"}}
RECORDS = {"path": "a.tfrecord", "features": TOKENS, "inputs": "tokens", "targets": "label"}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_examples_give_samples_of_their_own_lengths(tmp_path: Path, read: Read, compression: str) -> None:
    records = [example(tokens=list(range(length)), label=[length % 2]) for length in (2, 5, 0, 3)]
    write_records(tmp_path / "a.tfrecord", *records, compression="GZIP" if compression == "gzip" else "")
    found, worst = read(tfrecord={**RECORDS, "compression": compression})
    assert found == Scan(
        samples=4,
        read=4,
        lengths=((1, 1), (2, 1), (3, 1), (5, 1)),
        largest_input=4,
        largest_target=1,
        sequences=("inputs.",),
    )
    assert shapes(worst) == [((5,), ()), ((3,), ()), ((2,), ()), ((0,), ())]
    some = read(Bounds(samples=2), tfrecord={**RECORDS, "compression": compression})[0]
    assert some.read == 2
    assert some.samples == pytest.approx(4, abs=1)


def test_features_can_be_text_and_arrays(tmp_path: Path, read: Read) -> None:
    features = {
        "text": {"dtype": "string"},
        "frames": {"shape": [None, 2], "dtype": "float32"},
        "box": {"shape": [2, 2], "dtype": "float32"},
    }
    write_records(
        tmp_path / "a.tfrecord",
        example(text=["grüße an alle".encode()], frames=[1.0, 2.0], box=[1.0, 2.0, 3.0, 4.0]),
    )
    found, worst = read(
        tfrecord={
            "path": "a.tfrecord",
            "features": features,
            "inputs": {"f": "frames", "t": "text"},
            "targets": {"b": "box"},
        }
    )
    inputs, targets = worst[0]
    assert found.lengths == ((1, 1),)
    assert (inputs["f"].shape, inputs["t"].shape, targets["b"].shape) == ((1, 2), (3,), (2, 2))


def test_records_that_cannot_be_used(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "a.tfrecord"
    cases = [
        ([b"\xff\xff\xff"], "record 1 can't be read: not a tf.train.Example"),
        ([example(token=[1], label=[1])], "has no feature 'tokens' (dataset.tfrecord.inputs) | did you mean 'token'?"),
        ([example(tokens=[1.5], label=[1])], "feature 'tokens' holds float32, not int64 (dataset.tfrecord.inputs)"),
        ([example(tokens=[1], label=[1, 2])], "feature 'label' has 2 values, which do not make a shape of []"),
        ([], "a.tfrecord holds no samples"),
    ]
    for records, said in cases:
        write_records(path, *records)
        assert said in refused(tfrecord=RECORDS)
    write_records(path, example(tokens=[1], label=[1]), example(tokens=[1] * 50, label=[1]))
    assert "is not compressed with gzip" in refused(tfrecord={**RECORDS, "compression": "gzip"})
    path.write_bytes(path.read_bytes()[:-9])
    assert "a.tfrecord, record 2 can't be read" in refused(tfrecord=RECORDS)
    write_records(path, *[example(tokens=[number, 7], label=[1]) for number in range(300)], compression="GZIP")
    assert "is compressed | set dataset.tfrecord.compression to gzip" in refused(tfrecord=RECORDS)
    path.write_bytes(path.read_bytes()[:-20])
    assert "can't be read" in refused(tfrecord={**RECORDS, "compression": "gzip"})


def test_a_number_that_is_none_is_said_with_its_record(tmp_path: Path, refused: Callable[..., str]) -> None:
    features = {"x": {"shape": [2], "dtype": "float32"}, "y": {"shape": [], "dtype": "float32"}}
    write_records(tmp_path / "a.tfrecord", example(x=[1.0, float("nan")], y=[1.0]))
    section = {"path": "a.tfrecord", "features": features, "inputs": "x", "targets": "y"}
    assert "record 1: 'x' is NaN (dataset.tfrecord.inputs)" in refused(tfrecord=section)


# --- images


def write_images(folder: Path) -> None:
    image = tf.constant(np.random.default_rng(0).integers(0, 255, (20, 30, 3)), tf.uint8)
    for name, encoded in {
        "dogs/a.png": tf.io.encode_png(image),
        "cats/b.JPG": tf.io.encode_jpeg(image),
        "cats/c.jpeg": tf.io.encode_jpeg(image[:, :, :1]),
        "cats/notes.txt": tf.constant("no image"),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded.numpy())


def test_a_folder_is_a_class_and_images_come_in_one_size(tmp_path: Path, read: Read) -> None:
    write_images(tmp_path / "data")
    found, worst = read(images={"path": "data", "size": [8, 6]})
    assert found == Scan(samples=3, read=3, largest_target=1)
    assert shapes(worst) == [((8, 6, 3), ())] * 3
    assert [int(targets) for _, targets in worst] == [0, 0, 1]
    assert worst[0][0].dtype == "float32"
    assert worst[0][0].max() > 100
    some = read(Bounds(images=2), images={"path": "data", "size": [8, 6], "channels": 1})[0]
    assert (some.samples, some.read) == (3, 2)


def test_images_that_cannot_be_used(tmp_path: Path, refused: Callable[..., str]) -> None:
    section = {"path": "data", "size": [8, 6]}
    (tmp_path / "data").mkdir()
    assert "data: no folders in it (dataset.images.path)" in refused(images=section)
    (tmp_path / "data" / "cats").mkdir()
    assert "data: no images in its folders" in refused(images=section)
    write_images(tmp_path / "data")
    for name in ("dogs/a.png", "cats/c.jpeg"):
        path = tmp_path / "data" / name
        path.write_bytes(path.read_bytes()[:200])
        assert f"{name} can't be read: " in refused(images=section)


# --- a function of the user's

MODULE = """
import numpy as np
import tensorflow as tf

ragged = tf.ragged.constant([[1, 2], [3], [4, 5, 6]])

def pipeline(): return tf.data.Dataset.from_tensor_slices((ragged, [0, 1, 1]))
def padded(): return tf.data.Dataset.from_tensor_slices(([[1, 0, 0], [2, 3, 0]], [0, 1]))
def by_name(): return tf.data.Dataset.from_tensor_slices(({"a": np.zeros((4, 2), "f")}, {"out": np.zeros((4, 1), "f")}))
def endless(): return pipeline().repeat()
def arrays(): return np.array([[1, 2, 0], [3, 0, 0]]), {"y": np.array([0.5, 1])}
def ragged_arrays(): return ragged, np.array([0, 1, 2])
def strings(): return np.array(["a b", "c"]), np.array([0, 1])
def objects(): return np.array(["é b", b"c"], dtype=object), np.array([0, 1])
def string_pipeline(): return tf.data.Dataset.from_tensor_slices((["a b", "c"], [0, 1]))
def mixed_objects(): return np.array(["a", None], dtype=object), np.array([0, 1])
def deep(): return tf.data.Dataset.from_tensors((tf.ragged.constant([[1, 2], [3]]), 1))
def empty(): return tf.data.Dataset.from_tensor_slices((np.zeros((0, 2)), np.zeros(0)))
def nothing(): pass
def lists(): return [[1, 2], [3, 4]]
def triple(): return tf.data.Dataset.from_tensors((1, 2, 3))
def nested(): return tf.data.Dataset.from_tensors(((1, 2), 3))
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
    assert (source.held is None) != (source.dataset is None)
    samples = list(source.samples)
    assert len(samples) == kept
    assert all(array.dtype.kind != "O" for array in samples[0] if not isinstance(array, dict)), "nothing is pickled"


@pytest.mark.usefixtures("functions")
def test_a_pipeline_without_end_is_read_for_a_while(read: Read) -> None:
    found = read(Bounds(endless=100), python="my_data:endless")[0]
    assert (found.read, found.samples) == (100, ENDLESS), "its end bounds no batch"


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nothing", "my_data:nothing returned a NoneType"),
        ("lists", "returned a list of 2 as inputs"),
        ("triple", "the dataset of my_data:triple has elements of a tuple of 3, not (inputs, targets)"),
        ("nested", "the inputs of my_data:nested are a tuple of 2, not a tensor or a dict of tensors"),
        ("mixed_objects", "inputs has the type object, not numbers"),
        ("uneven", "'inputs' has 3 samples and 'targets' has 4"),
        ("uneven_ragged", "the arrays of my_data:uneven_ragged have 3 and 4 samples"),
        ("empty", "dataset.python (my_data:empty) holds no samples"),
        ("nan", "dataset.python (my_data:nan), sample 2: 'inputs' is NaN"),
        ("fails", "dataset.python (my_data:fails) failed after 0 samples or a few more: "),
        ("differing", "sample 2: 'inputs' has the shape [1, 1], earlier samples have [1, 2]"),
    ],
)
def test_what_a_function_may_not_return(refused: Callable[..., str], function: str, said: str) -> None:
    assert said in refused(python=f"my_data:{function}")


@pytest.mark.usefixtures("functions")
def test_a_function_that_is_not_there_is_named(read: Read) -> None:
    with pytest.raises(TrialCrashed, match=r"dataset.python: my_data has no function 'none'"):
        read(python="my_data:none")


# --- TensorFlow Datasets


def test_a_missing_package_is_named_with_how_to_get_it(
    tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorflow_datasets", None)
    assert "needs the package tensorflow-datasets" in (
        said := refused(tfds={"path": ".", "inputs": "text", "targets": "label"})
    )
    assert said.endswith("pip install tensorflow-datasets")


# --- what vanished since


def test_a_file_that_vanished_after_the_spec_was_read_is_said_so(tmp_path: Path, dataset: Any) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    spec = dataset(text={"path": "a.txt"})
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataUnreadable, match=r"dataset.text.path: no such file: .*a\.txt"):
        open_source(spec, str(tmp_path))
