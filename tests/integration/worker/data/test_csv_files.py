"""CSV files are read, and every way they can be broken is reported with its line."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from oomtune.domain import Scan
from oomtune.worker.data.source import Bounds
from tests.support.reading import Read


def test_columns_become_a_vector_and_class_names_become_numbers(tmp_path: Path, read: Read) -> None:
    (tmp_path / "b.csv").write_text("label,age,income\ndog,3,30\n")
    (tmp_path / "a.csv").write_text("\ufeffage,income,label,note\n1,10,cat,x\n\n2,2e1,dog,\n")
    result, worst = read(csv={"path": "*.csv", "inputs": ["age", "income"], "targets": "label"})
    places = {"targets.": (f"{tmp_path}/a.csv:2", f"{tmp_path}/a.csv:4")}
    assert result == Scan(samples=3, read=3, ranges={"targets.": (0, 1)}, places=places)
    assert [inputs.tolist() for inputs, _ in worst] == [[1, 10], [2, 20], [3, 30]]
    assert [(int(targets), targets.dtype) for _, targets in worst] == [(0, "int32"), (1, "int32"), (1, "int32")]
    assert worst[0][0].dtype == "float32"


def test_text_columns_become_tokens_and_the_longest_come_first(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.csv").write_text('review;stars;age\n"so; so";1.5;7\none two three;4;8\n')
    section = {"path": "a.csv", "inputs": {"words": "review", "age": "age"}, "targets": "stars", "text": ["review"]}
    result, worst = read(csv={**section, "delimiter": ";"}, tokenizer={"max": 50})
    assert result.lengths == ((2, 1), (3, 1))
    ids = [1 + zlib.crc32(word) % 49 for word in (b"one", b"two", b"three")]
    assert worst[0][0]["words"].tolist() == ids
    assert worst[0][0]["words"].dtype == "int32"
    assert worst[0][0]["age"] == 8
    assert [float(targets) for _, targets in worst] == [4, 1.5]
    assert {str(targets.dtype) for _, targets in worst} == {"float32"}


def test_one_late_fraction_makes_all_targets_floats(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 1500 + "1,2.5\n")
    result, worst = read(csv={"path": "a.csv", "inputs": "x", "targets": "y"})
    assert "targets." not in result.ranges
    assert result.fractions == {"targets.": 2.5}
    assert worst[0][1].dtype == "float32"


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_unusable_tables_are_reported_with_line_and_column(
    tmp_path: Path, refused: Callable[..., str], text: str, message: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert message in refused(csv={"path": "a.csv", "inputs": ["age", "income"], "targets": "label"})


def test_a_table_in_another_encoding_is_reported_with_its_line(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n1,caf\xe9\n")
    assert "a.csv:3 can't be read: byte 6 of the line is not UTF-8" in refused(
        csv={"path": "a.csv", "inputs": "x", "targets": "y"}
    )


def test_cells_with_line_ends_are_never_cut_in_two(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + '"one\ntwo\n3,4",1\n' * 2000)
    section = {"path": "a.csv", "inputs": "x", "targets": "y", "text": ["x"]}
    result = read(Bounds(whole_bytes=1000, stretches_bytes=5000), csv=section)[0]
    assert 200 < result.read < 400
    assert result.samples == pytest.approx(2000, rel=0.05)
    assert result.lengths == ((3, result.read),)
