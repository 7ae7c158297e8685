"""Plain text: each line is a sample, and its words, characters or bytes become tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.reading import Read


def test_a_line_is_a_sample_and_each_token_predicts_the_next(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.txt").write_text("one two three\n\n   \nalone\nfour five")
    result, worst = read(text={"path": "a.txt", "targets": "next"})
    assert result.lengths == ((1, 1), (2, 1))
    assert worst[0][0].tolist()[1:] == worst[0][1].tolist()[:-1]
    assert result.ranges["inputs."][1] < 20_000
    assert read(text={"path": "a.txt", "targets": "same"})[0].lengths == ((1, 1), (2, 1), (3, 1))


@pytest.mark.parametrize(("split", "length"), [("words", 2), ("characters", 5), ("bytes", 6)])
def test_text_is_split_as_the_spec_says(tmp_path: Path, read: Read, split: str, length: int) -> None:
    (tmp_path / "a.txt").write_text("né ok\n")
    targets = {"shape": ["sequence_length", 2], "dtype": "int32", "max": 3}
    result, worst = read(text={"path": "a.txt", "targets": targets}, tokenizer={"split": split, "max": 7})
    assert result.lengths == ((length, 1),)
    assert worst[0][1].shape == (length, 2)
    assert worst[0][0].min() >= 1
    assert worst[0][0].max() < 7


def test_a_text_vectorization_layer_learns_the_vocabulary_of_the_data(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a.txt").write_text("The cat, the hat\na cat\n" * 300)
    layer: dict[str, Any] = {"max_tokens": 100}
    result, worst = read(text={"path": "a.txt", "targets": "same"}, tokenizer={"TextVectorization": layer})
    assert (result.read, result.lengths, result.ranges["inputs."][1]) == (600, ((2, 300), (4, 300)), 5)
    assert worst[0][0].tolist()[0] == worst[0][0].tolist()[2]
    (tmp_path / "words.txt").write_text("cat\nhat\n")
    for vocabulary in ("words.txt", ["cat", "hat"]):
        layer = {"vocabulary": vocabulary}
        _, worst = read(text={"path": "a.txt", "targets": "same"}, tokenizer={"TextVectorization": layer})
        assert worst[0][0].tolist() == [1, 2, 1, 3]


def test_wrong_arguments_for_the_layer_are_reported_with_their_key(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    layer = {"max_toks": 100}
    message = refused(text={"path": "a.txt"}, tokenizer={"TextVectorization": layer})
    assert message.startswith("dataset.tokenizer.TextVectorization: ")
    assert "max_toks" in message


def test_text_without_a_pair_of_tokens_has_no_samples(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "a.txt").write_text("alone\nalone\n")
    assert "a.txt holds no samples" in refused(text={"path": "a.txt"})
