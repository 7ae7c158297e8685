"""Tables, JSON lines and text are read, and every way they can be broken is said with its line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomtune.domain import Scan
from oomtune.worker.data.scan import scan
from oomtune.worker.data.source import Bounds
from tests.support.reading import Read

# --- csv


def test_columns_become_a_vector_and_class_names_numbers(tmp_path: Path, read: Read) -> None:
    (tmp_path / "b.csv").write_text("label,age,income\ndog,3,30\n")
    (tmp_path / "a.csv").write_text("\ufeffage,income,label,note\n1,10,cat,x\n\n2,2e1,dog,\n")
    found, worst = read(csv={"path": "*.csv", "inputs": ["age", "income"], "targets": "label"})
    places = {"targets.": (f"{tmp_path}/a.csv:2", f"{tmp_path}/a.csv:4")}
    assert found == Scan(samples=3, read=3, ranges={"targets.": (0, 1)}, places=places)
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
    assert "targets." not in found.ranges
    assert found.fractions == {"targets.": 2.5}
    assert worst[0][1].dtype == "float32"


def test_labels_that_are_stored_as_floats_have_a_range_and_inputs_that_are_have_none(
    tmp_path: Path, read: Read
) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1.0,0.0\n2.0,5.0\n")
    found, _ = read(csv={"path": "a.csv", "inputs": "x", "targets": "y"})
    assert (found.ranges, found.fractions) == ({"targets.": (0, 5)}, {})
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2)), y=np.array([2.0, -1.0, 7.0]))
    found, _ = read(npz={"path": "a.npz"})
    assert (found.ranges, found.fractions) == ({"targets.": (-1, 7)}, {})
    np.savez(tmp_path / "b.npz", x=np.ones((3, 2)), y=np.array([2.0, 0.25, 7.0]))
    found, _ = read(npz={"path": "b.npz"})
    assert (found.ranges, found.fractions) == ({}, {"targets.": 0.25})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age,incme,label\n1,2,3\n", "a.csv has no column 'income' (dataset.csv.inputs) | did you mean 'incme'?"),
        ("age;income;label\n1;2;3\n", "'age;income;label' | set dataset.csv.delimiter: \";\""),
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
        samples=3,
        read=3,
        lengths=((1, 1), (2, 1), (3, 1)),
        ranges={"inputs.": (0, 9), "targets.": (0, 1)},
        places={"targets.": (f"{tmp_path}/a.jsonl:1", f"{tmp_path}/a.jsonl:2")},
        sequences=("inputs.",),
    )
    assert [(inputs.tolist(), int(targets)) for inputs, targets in worst] == [([7, 8, 9], 1), ([4, 0], 0), ([], 0)]
    assert {str(inputs.dtype) for inputs, _ in worst} == {"int32"}


def test_a_list_of_strings_is_text_that_is_split_already_or_a_class_for_each_step(
    tmp_path: Path, read: Read, refused: Callable[..., str]
) -> None:
    write_jsonl(
        tmp_path / "a.jsonl",
        {"words": ["New York", "is", "big"], "tags": ["place", "none", "none"]},
        {"words": ["so"], "tags": ["none"]},
        {"words": [], "tags": []},
    )
    section: dict[str, Any] = {"path": "a.jsonl", "inputs": "words", "targets": "tags"}
    for split in ("words", "characters", "bytes"):
        found, worst = read(jsonl=section, tokenizer={"split": split, "max": 99})
        assert (found.lengths, found.sequences) == (((1, 2), (3, 1)), ("inputs.", "targets."))
        assert [targets.tolist() for _, targets in worst] == [[0, 1, 1], [1], []]
        assert 0 < worst[0][0].min() <= worst[0][0].max() < 99
    write_jsonl(tmp_path / "a.jsonl", {"words": ["a", "b"], "tags": ["b", "a"]})
    section |= {"text": ["tags"]}
    _, ((inputs, targets),) = read(jsonl=section, tokenizer={"TextVectorization": {"vocabulary": ["a", "b"]}})
    assert (inputs.tolist(), targets.tolist()) == ([2, 3], [3, 2])
    by_character = {"vocabulary": ["a", "b"], "split": "character"}
    assert "TextVectorization.split: the data has lists of words" in refused(
        jsonl=section, tokenizer={"TextVectorization": by_character}
    )


def test_text_that_is_not_split_stays_text_and_the_most_words_are_the_worst(tmp_path: Path, read: Read) -> None:
    rows = [{"text": " ".join("é" * size), "label": size % 2} for size in (2, 7, 3, 0, 5)]
    write_jsonl(tmp_path / "a.jsonl", *rows)
    section = {"path": "a.jsonl", "inputs": "text", "targets": "label"}
    found, worst = read(Bounds(worst=3), jsonl=section, tokenizer={"split": "none"})
    assert (found.samples, found.lengths, found.sequences) == (5, (), ())
    assert [len(inputs.item().decode().split()) for inputs, _ in worst] == [7, 5, 3]
    (tmp_path / "a.txt").write_text("one\none two three\none two\n")
    targets = {"shape": ["sequence_length"], "dtype": "int32", "max": 3}
    _, worst = read(text={"path": "a.txt", "targets": targets}, tokenizer={"split": "none"})
    assert [(inputs.item(), targets.shape) for inputs, targets in worst[:2]] == [
        (b"one two three", (3,)),
        (b"one two", (2,)),
    ]


def test_text_arrays_vectors_and_numbers_can_be_fields(tmp_path: Path, read: Read) -> None:
    write_jsonl(
        tmp_path / "a.jsonl",
        {"text": "a b c", "grid": [[1, 2], [3, 4]], "a": 1, "b": 2, "share": 0.5, "out": "x y"},
        {"text": "a", "grid": [[1, 2.5]], "a": 3, "b": 4, "share": 1, "out": "z"},
    )
    inputs = {"t": "text", "g": "grid", "v": ["a", "b"], "n": "a"}
    found, worst = read(jsonl={"path": "a.jsonl", "inputs": inputs, "targets": "out", "text": ["out"]})
    assert found.lengths == ((1, 1), (3, 1))
    first, targets = worst[0]
    assert (first["t"].shape, first["g"].shape, first["v"].tolist(), int(first["n"])) == ((3,), (2, 2), [1, 2], 1)
    assert (str(first["g"].dtype), str(first["v"].dtype), str(first["n"].dtype)) == ("float32", "float32", "int32")
    assert (targets.shape, targets.dtype) == ((2,), "int32")
    _, worst = read(jsonl={"path": "a.jsonl", "inputs": "a", "targets": ["b", "share"]})
    assert [(targets.tolist(), str(targets.dtype)) for _, targets in worst] == [
        ([2, 0.5], "float32"),
        ([4, 1], "float32"),
    ]


def test_a_list_of_fractions_has_a_length_only_if_lengths_differ(tmp_path: Path, read: Read) -> None:
    section = {"path": "a.jsonl", "inputs": "x", "targets": "y"}
    write_jsonl(tmp_path / "a.jsonl", {"x": [1, 2], "y": 0.5}, {"x": [0.5, 1], "y": 1})
    assert read(jsonl=section)[0].lengths == ()
    write_jsonl(tmp_path / "a.jsonl", {"x": [1.5, 2], "y": 0.5}, {"x": [0.5], "y": 1})
    assert read(jsonl=section)[0].lengths == ((1, 1), (2, 1))


@pytest.mark.parametrize(
    ("target", "lengths"),
    [
        (9, ((5, 1), (8, 20), (9, 1))),
        (7, ((5, 1), (7, 1), (8, 20))),
    ],
)
def test_a_sample_is_as_long_as_its_longest_part_and_the_longest_of_each_is_kept(
    tmp_path: Path, read: Read, target: int, lengths: Any
) -> None:
    pairs = [(3, 5), *[(8, 5)] * 20, (2, target)]
    write_jsonl(tmp_path / "a.jsonl", *({"from": [1] * left, "to": [1] * right} for left, right in pairs))
    found, worst = read(Bounds(worst=4), jsonl={"path": "a.jsonl", "inputs": "from", "targets": "to"})
    assert found.lengths == lengths
    assert found.sequences == ("inputs.", "targets.")
    longest = [max(len(part) for part in side) for side in zip(*worst, strict=True)]
    assert longest == [8, target], "a batch may hold both, each padded to its own longest"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"x": [1], "y": 1}\n{"x": [1], "y"', "a.jsonl:2: the last line is cut short"),
        ('{"x": [1], "y": 1}\nhello\n', "a.jsonl:2: not JSON"),
        ("[1, 2]\n", "a.jsonl:1: expected a JSON object, found [1, 2]"),
        ('{"xx": [1], "y": 1}\n', "a.jsonl:1 has no field 'x' (dataset.jsonl.inputs) | did you mean 'xx'?"),
        ('{"x": [1.0, NaN], "y": 1}\n', "a.jsonl:1: 'x' is NaN (dataset.jsonl.inputs)"),
        ('{"x": [1], "y": Infinity}\n', "a.jsonl:1: 'y' is infinite (dataset.jsonl.targets)"),
        ('{"x": [[1, 2], [3]], "y": 1}\n', "field 'x' has lists of different lengths (dataset.jsonl.inputs)"),
        ('{"x": ["a", 2], "y": 1}\n', "field 'x' is not a number, a text, or a list of numbers or strings"),
        ('{"x": null, "y": 1}\n', "field 'x' is not a number"),
        ('{"x": {"a": 1}, "y": 1}\n', "field 'x' is not a number"),
        ('{"x": [4294967296], "y": 1}\n', "field 'x' has a number beyond 32 bits"),
        ('{"x": [1180591620717411303424], "y": 1}\n', "field 'x' has a number beyond 32 bits"),
        ('{"x": [1], "y": 1}\n{"x": 1, "y": 1}\n', "a.jsonl:2: 'x' has the shape [], earlier samples have [1]"),
        (
            '{"x": [[1, 2]], "y": 1}\n{"x": [[1]], "y": 1}\n',
            "a.jsonl:2: 'x' has the shape [1, 1], earlier samples have",
        ),
        (
            '{"x": "ok", "y": 1}\n{"x": "a \\ud83d", "y": 1}\n',
            "a.jsonl:2: 'x' contains half a character, '\\ud83d' (dataset.jsonl.inputs)",
        ),
        ('{"x": "ok", "y": 1}\n{"x": 404, "y": 1}\n', "a.jsonl:2: 'x' is numbers, earlier samples have text"),
        ('{"x": 404, "y": 1}\n{"x": ["ok"], "y": 1}\n', "a.jsonl:2: 'x' is text, earlier samples have numbers"),
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
    assert found.ranges["targets."][1] > 850, "the stretches reach towards the end of a file"


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
