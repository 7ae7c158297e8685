"""The tensor or array that a message names: its shape and type."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from oomtune.diagnosis.names import dtype_of

# Log shippers put quotes and braces right behind a message.
_NAME = r"[\w./:-]+"
# What is longer is no shape, and a number that Python may refuse to read.
_SHAPE = r"(?P<shape>[\d,\s]{0,99})"
_REFUSED = re.compile(
    rf"allocating tensor (?:with|of) shape\s*\[{_SHAPE}\](?: and type (?P<dtype>\w+))?"
    rf"(?: on (?P<device>{_NAME}))?(?: by allocator (?P<allocator>{_NAME}))?",
    re.I,
)
_ARRAY = re.compile(rf"\barray with shape \({_SHAPE}\) and data type (?P<dtype>\w+)", re.I)
# XLA lists the largest buffers of a program first: `Shape: f32[32,12,1024,1024]{3,2,1,0}`.
_BUFFER = re.compile(rf"^\W*shape: \(?(?P<dtype>[a-z]+\d*(?:e\dm\d\w*)?)\[(?=\d){_SHAPE}\]", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: str | None = None
    device: str | None = None
    allocator: str | None = None
    refused: bool = True
    """Is it what was asked for, and not the largest part of a program that was?"""


def is_refused(text: str) -> bool:
    """Does the text say that a tensor could not be had?"""
    return _REFUSED.search(text) is not None


def tensor_of(deciding: str, lines: Iterable[str]) -> Tensor | None:
    """The tensor that the deciding line names, or else the nearest line that names one."""
    near = list(lines)
    searches = ((_REFUSED, [deciding]), (_ARRAY, [deciding]), (_REFUSED, near), (_BUFFER, near))
    for pattern, texts in searches:
        for text in texts:
            if found := pattern.search(text):
                return _tensor(found, refused=pattern is not _BUFFER)
    return None


def _tensor(found: re.Match[str], *, refused: bool) -> Tensor:
    said = found.groupdict()
    return Tensor(
        shape=tuple(map(int, re.findall(r"\d+", said["shape"]))),
        dtype=dtype_of(said["dtype"]) if said["dtype"] else None,
        device=said.get("device"),
        allocator=said.get("allocator"),
        refused=refused,
    )
