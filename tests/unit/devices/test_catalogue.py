"""Cards by name, and the memory that TensorFlow can use on each."""

from __future__ import annotations

import csv

import pytest

from oomtune.devices.catalogue import cards, find_card
from oomtune.errors import UsageProblem
from tests.support.cli import ROOT


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("T4", "Tesla T4"),
        ("t4", "Tesla T4"),
        ("Tesla T4", "Tesla T4"),
        ("nvidia tesla t4", "Tesla T4"),
        ("rtx 3090", "GeForce RTX 3090"),
        ("RTX3090", "GeForce RTX 3090"),
        ("3090", "GeForce RTX 3090"),
        ("A100-40GB", "NVIDIA A100-SXM4-40GB"),
        ("a100 80gb", "NVIDIA A100-SXM4-80GB"),
        ("RTX 3060", "GeForce RTX 3060"),
        ("rtx 3060 laptop", "GeForce RTX 3060 Laptop GPU"),
        ("1080 ti", "GeForce GTX 1080 Ti"),
        ("1080", "GeForce GTX 1080"),
        ("L4", "NVIDIA L4"),
    ],
)
def test_finds_a_card_by_the_names_people_use(query: str, name: str) -> None:
    assert find_card(query).name == name


def test_finds_every_card_by_its_own_name() -> None:
    assert len(cards()) == 54
    for card in cards():
        assert find_card(card.name) == card


def test_an_ambiguous_name_lists_the_cards_it_matches() -> None:
    with pytest.raises(UsageProblem, match="NVIDIA A100-SXM4-40GB, NVIDIA A100-SXM4-80GB"):
        find_card("A100")


@pytest.mark.parametrize("query", ["RTX 3091", "T5", "", "banana"])
def test_an_unknown_name_lists_similar_cards(query: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        find_card(query)
    assert "similar: " in caught.value.hint
    assert any(card.name in caught.value.hint for card in cards())


def test_no_card_has_more_usable_memory_than_its_nominal_size() -> None:
    path = ROOT / "oomtune/devices/gpus.csv"
    for row in csv.DictReader(path.read_text().splitlines()):
        assert 0 < int(row["usable_mib"]) <= (int(row["nominal_gib"]) + 1) * 1024
