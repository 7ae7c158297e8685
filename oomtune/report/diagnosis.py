"""A diagnosis in words: the sentence, the facts, and the JSON document."""

from __future__ import annotations

from typing import Any

from oomtune.diagnosis import Diagnosis
from oomtune.diagnosis.names import size_of
from oomtune.diagnosis.remedy import Remedy
from oomtune.report.document import json_document
from oomtune.units import format_bytes

_WHERE = {"device_oom": "Out of device memory", "host_oom": "Out of host memory"}
_LONGEST_LINE = 300


def verdict_of(diagnosis: Diagnosis) -> str:
    if diagnosis.is_memory:
        return diagnosis.kind
    return "not_oom" if diagnosis.failed else "no_failure"


def sentence(diagnosis: Diagnosis) -> str:
    """The answer in one sentence."""
    if diagnosis.is_memory:
        return f"{_WHERE[diagnosis.kind]}."
    earlier = " Memory ran out earlier in the log, and the run went on." if diagnosis.survived else ""
    if diagnosis.failed:
        return f"Not memory: {diagnosis.cause}.{earlier}"
    return f"No failure in this log.{earlier}"


def fact_rows(diagnosis: Diagnosis, *, whole: bool = False) -> list[tuple[str, str]]:
    """What is known, and nothing for what is not; as a whole, also what the log does not tell."""
    line = diagnosis.line
    shown = line if whole or len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."
    rows = [
        (f"line {diagnosis.line_number}", shown),
        ("tensor", _tensor(diagnosis)),
        ("asked for", format_bytes(diagnosis.bytes_requested) if diagnosis.bytes_requested else ""),
        ("op", diagnosis.op or ""),
        ("layer", diagnosis.layer or ""),
        ("allocator", diagnosis.allocator or ""),
        ("device", diagnosis.device or ""),
        ("how full", _how_full(diagnosis)),
    ]
    return [(name, value or "not in the log") for name, value in rows if value or whole]


def _tensor(diagnosis: Diagnosis) -> str:
    if diagnosis.tensor_shape is None:
        return ""
    size = size_of(diagnosis.tensor_shape, diagnosis.dtype)
    words = [str(list(diagnosis.tensor_shape)), diagnosis.dtype, format_bytes(size) if size else None]
    return ", ".join(word for word in words if word)


def _how_full(diagnosis: Diagnosis) -> str:
    used, limit = diagnosis.in_use_bytes, diagnosis.limit_bytes
    if used is not None and limit:
        return f"{format_bytes(used)} of {format_bytes(limit)} in use ({used / limit:.0%})"
    if used is not None:
        return f"{format_bytes(used)} in use"
    return f"a limit of {format_bytes(limit)}" if limit else ""


def diagnosis_document(diagnosis: Diagnosis, advice: list[Remedy], exit_code: int) -> dict[str, Any]:
    shape = diagnosis.tensor_shape
    entries = {
        "kind": diagnosis.kind,
        "failed": diagnosis.failed,
        "cause": None if diagnosis.cause is None else diagnosis.cause.name.lower(),
        "survived": diagnosis.survived,
        "line": diagnosis.line,
        "line_number": diagnosis.line_number,
        "tensor": None
        if shape is None
        else {"shape": list(shape), "dtype": diagnosis.dtype, "bytes": size_of(shape, diagnosis.dtype)},
        "op": diagnosis.op,
        "layer": diagnosis.layer,
        "allocator": diagnosis.allocator,
        "device": diagnosis.device,
        "memory": {
            "requested_bytes": diagnosis.bytes_requested,
            "in_use_bytes": diagnosis.in_use_bytes,
            "limit_bytes": diagnosis.limit_bytes,
        },
        "advice": [
            {
                "what": remedy.what,
                "spec": remedy.spec_line or None,
                "set": remedy.set_flag or None,
                "code": remedy.code or None,
            }
            for remedy in advice
        ],
    }
    return json_document("diagnose", exit_code, verdict_of(diagnosis), entries)
