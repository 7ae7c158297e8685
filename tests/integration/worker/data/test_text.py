"""Text, one sample a line, and how it becomes tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.reading import Read


def test_a_line_is_a_sample_and_each_token_has_its_successor_as_target(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.txt").write_text("one two three\n\n   \nalone\nfour five")
    found, worst = read(text={"path": "a.txt", "targets": "next"})
    assert found.lengths == ((1, 1), (2, 1))
    assert worst[0][0].tolist()[1:] == worst[0][1].tolist()[:-1]
    assert found.ranges["inputs."][1] < 20_000
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
    assert (found.read, found.lengths, found.ranges["inputs."][1]) == (600, ((2, 300), (4, 300)), 5)
    assert worst[0][0].tolist()[0] == worst[0][0].tolist()[2]
    (tmp_path / "words.txt").write_text("cat\nhat\n")
    for vocabulary in ("words.txt", ["cat", "hat"]):
        layer = {"vocabulary": vocabulary}
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


@pytest.mark.parametrize(("split", "kept"), [("words", [2, 0]), ("none", [b"a b", b""])])
def test_an_empty_list_among_words_has_none(tmp_path: Path, read: Read, split: str, kept: list[Any]) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": [], "y": 1}\n{"x": ["a", "b"], "y": 0}\n')
    section = {"path": "a.jsonl", "inputs": "x", "targets": "y"}
    _, worst = read(jsonl=section, tokenizer={"split": split})
    assert [inputs.item() if split == "none" else len(inputs) for inputs, _ in worst] == kept


def test_the_places_of_the_smallest_and_the_largest_label_are_known(tmp_path: Path, read: Read) -> None:
    for name, labels in {"a": (0, 1, 1), "b": (2, -1, 0), "c": (1, 7, 2)}.items():
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "".join(f"0,{label}\n" for label in labels))
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"x": [1], "y": {label / 2}}}\n' for label in labels))
    found, _ = read(csv={"path": "*.csv", "inputs": ["x"], "targets": "y"})
    assert found.ranges == {"targets.": (-1, 7)}
    assert found.places == {"targets.": (f"{tmp_path}/b.csv:3", f"{tmp_path}/c.csv:3")}
    found, _ = read(jsonl={"path": "*.jsonl", "inputs": "x", "targets": "y"})
    assert found.fractions == {"targets.": 0.5}
    assert found.places == {"targets.": (f"{tmp_path}/a.jsonl:2",) * 2}
