"""YAML text is read as plain values, and refused if it is dangerous or ambiguous."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from oomtune.spec import load_spec
from tests.support.specs import small_spec, spec_problems


def write(folder: Path, text: str) -> Path:
    path = folder / "model.yaml"
    path.write_text(text)
    return path


def test_reads_a_number_in_scientific_notation_without_a_dot(tmp_path: Path) -> None:
    text = yaml.safe_dump(small_spec(training__optimizer=None)).replace(
        "training:\n", "training:\n  optimizer: {class_name: Adam, config: {learning_rate: 1e-4}}\n"
    )
    optimizer = load_spec(write(tmp_path, text)).spec.training.optimizer
    assert optimizer.config == {"learning_rate": 1e-4}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- a\n- list\n", ":1: expected a mapping with model, dataset, ...; got a list"),
        ("just words\n", "got a single value"),
        ("a: [1, 2\n", "not valid YAML"),
        ("a: b: c\n", ":1: not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("? [a, b]\n: 1\n", "a key must be a word"),
        ("a: .inf\n", ":1: '.inf' is neither text nor a finite number"),
        ("a: 2024-01-02\n", "quote it if it is text"),
        ("a: 2024-13-02\n", ":1: '2024-13-02' is not a valid timestamp; quote it if it is text"),
        ("a: !!int ''\nb: !!bool no-one\n", ":1: '' is not a valid int"),
        ("a: !!binary aGk=\n", "neither text nor a finite number"),
        ("a: &a [*a]\n", "nested more than 50 levels deep"),
        ("[" * 5000, "nested more than 50 levels deep"),
    ],
)
def test_refuses_text_that_is_not_a_spec_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (line,) = spec_problems(write(tmp_path, text))
    assert message in line
    assert "model.yaml" in line


def test_refuses_a_yaml_bomb_before_it_expands(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (line,) = spec_problems(write(tmp_path, "\n".join(levels)))
    assert "aliases expand this to more than 100,000 values" in line


def test_does_not_read_a_file_of_fifty_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 1000**2)
    assert "too large for a spec; at most 1,048,576 bytes are read" in spec_problems(path)[0]


def test_stops_reading_an_endless_device() -> None:
    assert "too large for a spec" in spec_problems(Path("/dev/zero"))[0]


@pytest.mark.parametrize("junk", [b"\x00\x01\x02", b"\xff\xfe\x00binary", bytes(range(256))])
def test_reports_that_a_binary_file_is_not_text(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "model.yaml"
    path.write_bytes(junk)
    assert "not text" in spec_problems(path)[0] or "not valid YAML" in spec_problems(path)[0]


def test_reports_a_missing_file_and_a_folder_differently(tmp_path: Path) -> None:
    assert spec_problems(tmp_path / "none.yaml") == [f"{tmp_path / 'none.yaml'}: no such file"]
    assert spec_problems(tmp_path) == [f"{tmp_path}: this is a folder, not a spec file"]
