"""JSON lines are read, and every way they can be broken is reported with its line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomtune.domain import Scan
from oomtune.worker.data.source import Bounds
from tests.support.reading import Read


def write_jsonl(path: Path, *rows: Any) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_list_of_whole_numbers_is_read_as_tokens(tmp_path: Path, read: Read) -> None:
    write_jsonl(
        tmp_path / "a.jsonl",
        {"tokens": [4, 0], "label": "neg"},
        {"tokens": [7, 8, 9], "label": "pos"},
        {"tokens": [], "label": "neg"},
    )
    result, worst = read(jsonl={"path": "a.jsonl", "inputs": "tokens", "targets": "label"})
    assert result == Scan(
        samples=3,
        read=3,
        lengths=((1, 1), (2, 1), (3, 1)),
        ranges={"inputs.": (0, 9), "targets.": (0, 1)},
        places={"targets.": (f"{tmp_path}/a.jsonl:1", f"{tmp_path}/a.jsonl:2")},
        sequences=("inputs.",),
    )
    assert [(inputs.tolist(), int(targets)) for inputs, targets in worst] == [([7, 8, 9], 1), ([4, 0], 0), ([], 0)]
    assert {str(inputs.dtype) for inputs, _ in worst} == {"int32"}


def test_a_list_of_strings_is_split_text_or_one_class_per_step(
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
        result, worst = read(jsonl=section, tokenizer={"split": split, "max": 99})
        assert (result.lengths, result.sequences) == (((1, 2), (3, 1)), ("inputs.", "targets."))
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


def test_unsplit_text_stays_text_and_is_ranked_by_its_words(tmp_path: Path, read: Read) -> None:
    rows = [{"text": " ".join("é" * size), "label": size % 2} for size in (2, 7, 3, 0, 5)]
    write_jsonl(tmp_path / "a.jsonl", *rows)
    section = {"path": "a.jsonl", "inputs": "text", "targets": "label"}
    result, worst = read(Bounds(worst=3), jsonl=section, tokenizer={"split": "none"})
    assert (result.samples, result.lengths, result.sequences) == (5, (), ())
    assert [len(inputs.item().decode().split()) for inputs, _ in worst] == [7, 5, 3]
    (tmp_path / "a.txt").write_text("one\none two three\none two\n")
    targets = {"shape": ["sequence_length"], "dtype": "int32", "max": 3}
    _, worst = read(text={"path": "a.txt", "targets": targets}, tokenizer={"split": "none"})
    assert [(inputs.item(), targets.shape) for inputs, targets in worst[:2]] == [
        (b"one two three", (3,)),
        (b"one two", (2,)),
    ]


def test_fields_may_be_text_arrays_vectors_or_numbers(tmp_path: Path, read: Read) -> None:
    write_jsonl(
        tmp_path / "a.jsonl",
        {"text": "a b c", "grid": [[1, 2], [3, 4]], "a": 1, "b": 2, "share": 0.5, "out": "x y"},
        {"text": "a", "grid": [[1, 2.5]], "a": 3, "b": 4, "share": 1, "out": "z"},
    )
    inputs = {"t": "text", "g": "grid", "v": ["a", "b"], "n": "a"}
    result, worst = read(jsonl={"path": "a.jsonl", "inputs": inputs, "targets": "out", "text": ["out"]})
    assert result.lengths == ((1, 1), (3, 1))
    first, targets = worst[0]
    assert (first["t"].shape, first["g"].shape, first["v"].tolist(), int(first["n"])) == ((3,), (2, 2), [1, 2], 1)
    assert (str(first["g"].dtype), str(first["v"].dtype), str(first["n"].dtype)) == ("float32", "float32", "int32")
    assert (targets.shape, targets.dtype) == ((2,), "int32")
    _, worst = read(jsonl={"path": "a.jsonl", "inputs": "a", "targets": ["b", "share"]})
    assert [(targets.tolist(), str(targets.dtype)) for _, targets in worst] == [
        ([2, 0.5], "float32"),
        ([4, 1], "float32"),
    ]


def test_a_list_of_fractions_has_a_length_only_if_sizes_differ(tmp_path: Path, read: Read) -> None:
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
def test_a_sample_is_as_long_as_its_longest_part_and_the_longest_of_each_part_is_kept(
    tmp_path: Path, read: Read, target: int, lengths: Any
) -> None:
    pairs = [(3, 5), *[(8, 5)] * 20, (2, target)]
    write_jsonl(tmp_path / "a.jsonl", *({"from": [1] * left, "to": [1] * right} for left, right in pairs))
    result, worst = read(Bounds(worst=4), jsonl={"path": "a.jsonl", "inputs": "from", "targets": "to"})
    assert result.lengths == lengths
    assert result.sequences == ("inputs.", "targets.")
    longest = [max(len(part) for part in side) for side in zip(*worst, strict=True)]
    assert longest == [8, target], "a batch may hold both, each padded to its own longest"


@pytest.mark.parametrize(
    ("lines", "message"),
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
def test_unusable_json_lines_are_reported_with_line_and_field(
    tmp_path: Path, refused: Callable[..., str], lines: str, message: str
) -> None:
    (tmp_path / "a.jsonl").write_text(lines)
    assert message in refused(jsonl={"path": "a.jsonl", "inputs": "x", "targets": "y"})


def test_a_gzip_file_is_read_and_a_truncated_one_is_refused(
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


def test_large_files_are_read_in_stretches_and_their_samples_are_estimated(tmp_path: Path, read: Read) -> None:
    for part in range(3):
        rows = [{"x": [part, row % 7], "y": row} for row in range(1000)]
        write_jsonl(tmp_path / f"{part}.jsonl", *rows)
    section = {"path": "*.jsonl", "inputs": "x", "targets": "y"}
    whole = read(jsonl=section)[0]
    assert (whole.samples, whole.read) == (3000, 3000)
    result = read(Bounds(whole_bytes=10_000, stretches_bytes=20_000), jsonl=section)[0]
    assert 500 < result.read < 1000
    assert result.samples == pytest.approx(3000, rel=0.03)
    assert result.ranges["targets."][1] > 850, "the stretches reach towards the end of a file"


@pytest.mark.parametrize(("split", "tokens"), [("words", [2, 0]), ("none", [b"a b", b""])])
def test_an_empty_list_among_lists_of_words_has_no_words(
    tmp_path: Path, read: Read, split: str, tokens: list[Any]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": [], "y": 1}\n{"x": ["a", "b"], "y": 0}\n')
    section = {"path": "a.jsonl", "inputs": "x", "targets": "y"}
    _, worst = read(jsonl=section, tokenizer={"split": split})
    assert [inputs.item() if split == "none" else len(inputs) for inputs, _ in worst] == tokens
