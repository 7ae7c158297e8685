"""Cards by name, and the memory that TensorFlow can use on each.

`usable_mib` in `gpus.csv` is `measured`, the median of what TensorFlow took on mostly free cards, or `estimated` for
cards that were always busy: the nominal size less 3 % and TensorFlow's own reserve.
"""

from __future__ import annotations

import csv
import difflib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from oomtune.errors import UsageProblem
from oomtune.units import MIB

# Words that people leave out or add.
_NOISE = {"nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "gpu", "graphics", "card"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    name: str
    usable_bytes: int
    basis: Literal["measured", "estimated"]

    @property
    def short_name(self) -> str:
        """The name as one shell word, without the words that people leave out: `RTX-3090`."""
        return "-".join(word for word in self.name.split() if word.lower() not in _NOISE)


@cache
def cards() -> tuple[Card, ...]:
    text = resources.files("oomtune.devices").joinpath("gpus.csv").read_text(encoding="utf-8")
    return tuple(
        Card(
            name=row["name"],
            usable_bytes=int(row["usable_mib"]) * MIB,
            basis="measured" if row["basis"] == "measured" else "estimated",
        )
        for row in csv.DictReader(text.splitlines())
    )


def find_card(name: str) -> Card:
    """Return the card for a name such as `t4`, `Tesla T4`, `rtx 3090` or `A100-40GB`.

    Raise `UsageProblem` for an unknown or ambiguous name.
    """
    words = _words(name)
    matches = [card for card in cards() if words and _matches(words, card)]
    # The shortest match wins: `RTX 3060` is the card, not its laptop variant.
    lengths = {card: len(_words(card.name)) for card in matches}
    closest = [card for card in matches if lengths[card] == min(lengths.values())]
    if len(closest) == 1:
        return closest[0]
    if closest:
        names = ", ".join(card.name for card in closest)
        raise UsageProblem(f"{name!r} matches several cards: {names}", hint="name one of them, or give --memory-limit")
    raise UsageProblem(
        f"no card {name!r} in the catalogue",
        hint=f"similar: {', '.join(_similar(name))}; or give --memory-limit a size",
    )


def _words(name: str) -> tuple[str, ...]:
    return tuple(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _NOISE)


def _matches(words: tuple[str, ...], card: Card) -> bool:
    """Return True if the card's name has all these words, written together or apart."""
    card_words = _words(card.name)
    if set(words) <= set(card_words):
        return True
    joined = "".join(words)
    ends = range(len(card_words) + 1)
    return any(joined == "".join(card_words[start:end]) for end in ends for start in range(end))


def _similar(name: str) -> list[str]:
    by_words = {" ".join(_words(card.name)): card.name for card in cards()}
    close = difflib.get_close_matches(" ".join(_words(name)), by_words, n=4, cutoff=0.3)
    return [by_words[words] for words in close] or [card.name for card in cards()[:4]]
