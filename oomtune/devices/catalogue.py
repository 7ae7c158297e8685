"""Cards by name, and how much of each TensorFlow can use.

`usable_mib` is the median of what TensorFlow reported taking on such a card while it was mostly free (`measured`);
where only readings from busy cards exist it is the nominal size less 3 % and TensorFlow's own reserve (`estimated`).
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

# Words that people leave out or put in as they like.
_NOISE = {"nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "gpu", "graphics", "card"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    name: str
    usable_bytes: int
    basis: Literal["measured", "estimated"]


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


def in_one_word(card: Card) -> str:
    """A card's name without what people leave out, for a shell: `RTX-3090`."""
    return "-".join(word for word in card.name.split() if word.lower() not in _NOISE)


def find_card(wanted: str) -> Card:
    """The card that this name means: `t4`, `Tesla T4`, `rtx 3090` and `A100-40GB` are all understood."""
    words = _words(wanted)
    matches = [card for card in cards() if words and _means(words, card)]
    # `RTX 3060` is the card itself and not its laptop variant: the name with the least left over.
    left_over = {card: len(_words(card.name)) for card in matches}
    closest = [card for card in matches if left_over[card] == min(left_over.values())]
    if len(closest) == 1:
        return closest[0]
    if closest:
        names = ", ".join(card.name for card in closest)
        raise UsageProblem(f"{wanted!r} means more than one card: {names}", hint="say which, or give --memory-limit")
    raise UsageProblem(
        f"no card {wanted!r} in the catalogue",
        hint=f"near it: {', '.join(_near(wanted))}; or give --memory-limit a size",
    )


def _words(name: str) -> tuple[str, ...]:
    return tuple(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _NOISE)


def _means(words: tuple[str, ...], card: Card) -> bool:
    """Are all these words in the card's name, also when they are written together or apart?"""
    own = _words(card.name)
    if set(words) <= set(own):
        return True
    joined = "".join(words)
    return any(joined == "".join(own[start:end]) for start in range(len(own)) for end in range(start + 1, len(own) + 1))


def _near(wanted: str) -> list[str]:
    by_words = {" ".join(_words(card.name)): card.name for card in cards()}
    close = difflib.get_close_matches(" ".join(_words(wanted)), by_words, n=4, cutoff=0.3)
    return [by_words[words] for words in close] or [card.name for card in cards()[:4]]
