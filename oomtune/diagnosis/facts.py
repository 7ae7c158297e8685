"""The facts of a failure: tensor, op, allocator, sizes, and how full the memory was."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from oomtune.diagnosis.fullness import SIZE, allocator_in, how_full, in_bytes
from oomtune.diagnosis.names import layer_of, size_of
from oomtune.diagnosis.result import Diagnosis
from oomtune.diagnosis.tensors import Tensor, tensor_of

_OP = re.compile(
    r"requested by op (?P<by>[\w./-]+)|\{\{node (?P<node>[^}]+)\}\}|\[Op:(?P<eager>[\w.]+)"
    r"|\[\[node:? (?P<old>[\w./-]+)|node:? '(?P<named>[^']+)'|op_name=\"(?P<hlo>[^\"]+)\"",
    re.I,
)
_DEVICE = re.compile(
    r"from /job:\S+ to (?P<to>/job:\S+?:\w+:\d+)|(?P<named>/job:\S+?(?:device:\w+|[cg]pu):\d+)"
    r"|(?:\(GPU (?=\d+;)|device ordinal |GPU (?=\d+ has a total))(?P<number>\d+)",
    re.I,
)
# Keras says which layer it called where TensorFlow names an op without a path.
_CALLED = re.compile(r"(?:when calling|received by) layer [\"'](?P<layer>[^\"']+)[\"']")
_ROUNDED = re.compile(r"\(rounded to (\d+)\)|\((\d+) ?(?:bytes|B)\)|large alloc (\d+)", re.I)
_ASKED = re.compile(
    rf"(?:trying to allocate|tried to allocate|failed to alloc(?:ate)?(?: request for)?"
    rf"|attempting to (?:reserve|allocate)|out of memory allocating|allocation of|malloc of size"
    rf"|pinned host memory of size:?|to allocate(?: \w+:)?) (?P<size>{SIZE})"
    rf"|\((?P<refused>{SIZE})\) could not be alloc",
    re.I,
)


class Told(NamedTuple):
    number: int
    text: str


def with_facts(diagnosis: Diagnosis, told: Sequence[Told]) -> Diagnosis:
    """What the deciding line says, and where it is silent, the lines nearest to it; below it first, as ops stand."""
    at = diagnosis.line_number or 0
    near = sorted(told, key=lambda line: (abs(line.number - at), -line.number))
    lines = [diagnosis.line, *(line.text for line in near)]
    tensor = tensor_of(diagnosis.line, lines)
    shape, dtype = (tensor.shape, tensor.dtype) if tensor else (None, None)
    op = _op(lines)
    allocator = (tensor and tensor.allocator) or next(filter(None, map(allocator_in, lines)), None)
    used, limit = how_full(near, at, allocator)
    return dataclasses.replace(
        diagnosis,
        tensor_shape=shape,
        dtype=dtype,
        op=op,
        layer=(layer_of(op) if op else None) or _called_layer(lines),
        allocator=allocator,
        device=(tensor and tensor.device) or _device(lines),
        bytes_requested=_requested(tensor, lines),
        in_use_bytes=used,
        limit_bytes=limit,
    )


def _matches(pattern: re.Pattern[str], lines: Iterable[str]) -> Iterator[re.Match[str]]:
    return (match for line in lines for match in pattern.finditer(line))


def _requested(tensor: Tensor | None, lines: Sequence[str]) -> int | None:
    """What the tensor takes, where it is what was asked for; a program asks for all of its buffers at once."""
    size = size_of(tensor.shape, tensor.dtype) if tensor else None
    asked = _asked(lines)
    return size or asked if tensor and tensor.refused else asked or size


def _called_layer(lines: Iterable[str]) -> str | None:
    match = next(_matches(_CALLED, lines), None)
    return match["layer"] if match else None


def _device(lines: Iterable[str]) -> str | None:
    match = next(_matches(_DEVICE, lines), None)
    if match is None:
        return None
    return f"GPU:{match['number']}" if match["number"] else match["to"] or match["named"]


def _op(lines: Sequence[str]) -> str | None:
    """The op named nearest; one with a path tells more than a call of a whole function."""
    names = [next(filter(None, match.groups())) for match in _matches(_OP, lines)]
    names = [name.strip().lstrip("^") for name in names if not name.startswith(("__inference", "__forward"))]
    telling = [name for name in names if "PartitionedCall" not in name.rpartition("/")[2]]
    return next(iter(telling), next(iter(names), None))


def _asked(lines: Sequence[str]) -> int | None:
    # What the model asked for comes before what the allocator then asked of the driver.
    for line in sorted(lines, key=lambda line: "from device" in line):
        if not (match := _ASKED.search(line)):
            continue
        exact = _ROUNDED.search(line, match.start())
        size = next(filter(None, exact.groups())) if exact else match["size"] or match["refused"]
        if found := in_bytes(size):
            return found
    return None
