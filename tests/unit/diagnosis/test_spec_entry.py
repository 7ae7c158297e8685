"""Spec entries as text to paste read back as the same values."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from oomtune.diagnosis.spec_entry import set_flag, spec_line
from oomtune.spec.yaml_text import parse_text, parse_value

ENTRIES = [
    ("search.remat", ["none", "full"], "search: {remat: [none, full]}"),
    ("search.batch_size", {"min": 1, "max": 63}, "search: {batch_size: {min: 1, max: 63}}"),
    ("training.optimizer", "sgd", "training: {optimizer: sgd}"),
    ("training.jit_compile", False, "training: {jit_compile: false}"),
    ("device.memory_limit", "2GiB", "device: {memory_limit: 2GiB}"),
    ("name", "a: b, 'c'", "name: 'a: b, ''c'''"),
    ("a.b.c", 0.5, "a: {b: {c: 0.5}}"),
]


@pytest.mark.parametrize(("key", "value", "line"), ENTRIES)
def test_a_dotted_key_becomes_one_line_that_a_spec_takes(key: str, value: Any, line: str) -> None:
    assert spec_line(key, value) == line
    read = parse_text(line)
    for part in key.split("."):
        read = read[part]
    assert read == value


@pytest.mark.parametrize(("key", "value", "_"), ENTRIES)
def test_the_flag_sets_the_same_value_through_a_shell(key: str, value: Any, _: str) -> None:
    option, entry = shlex.split(set_flag(key, value))
    name, _, text = entry.partition("=")
    assert (option, name, parse_value(text)) == ("--set", key, value)


def test_a_long_value_stays_on_its_line() -> None:
    assert "\n" not in spec_line("search.batch_size", list(range(200)))
