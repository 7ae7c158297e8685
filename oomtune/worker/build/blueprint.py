"""What a model is made from, for one candidate."""

from __future__ import annotations

from dataclasses import dataclass

from oomtune.domain import Candidate, ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    spec: ModelSpec
    folder: str
    """Where files and code of the user's own are found from."""
    candidate: Candidate
    sequences: frozenset[str] | None = None
    """The inputs whose samples have the length under trial, a single one by the empty name; None when that is not
    known. Those of a saved model take the candidate's length."""
    compiled_anew: bool = False
    """Does nobody need how it comes compiled?"""
