"""The text of a ledger: a header, then lines for what was probed, every beginning and end, and every trial.

The lines hold enough to show a probe again without its spec, its data or its machine.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from oomtune.domain import Aim, Device, Kind, ProbeResult, ProbeSpec, TrialError, TrialRecord, Verdict
from oomtune.storage.ledger_records import parse_record

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What was probed, on which device, and where the answer goes."""

    spec: ProbeSpec
    spec_path: str
    spec_sha256: str
    values: dict[str, Any]
    """The spec as written."""
    device: Device
    headroom: float
    environment: dict[str, Any] = field(default_factory=dict)
    output: str | None = None
    origin: dict[str, Any] = field(default_factory=dict)
    """What its tuned config says about the spec that people edit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a probe ended. A running or killed probe has none."""

    at: str
    verdict: Verdict
    problem: TrialError | None = None
    new_trials: int = 0
    environment: dict[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@cache
def _abouts() -> TypeAdapter[About]:
    # Built on first use: that takes time, in which a worker can already start.
    return TypeAdapter(About)


@cache
def _endings() -> TypeAdapter[Ended]:
    return TypeAdapter(Ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """The process that probes. It tells whether the probe still runs, without taking a lock."""

    pid: int
    host: str


@dataclass(slots=True, kw_only=True)
class LedgerContents:
    limit_bytes: int
    complete_bytes: int
    """The size of the ledger up to its last complete line."""
    records: list[TrialRecord] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that trials needed on this machine."""
    about: About | None = None
    began_at: str = ""
    prober: Prober | None = None
    ended: Ended | None = None


def parse_ledger(text: bytes) -> LedgerContents | None:
    """Return the contents up to the first incomplete line, or None if the text is no ledger."""
    contents: LedgerContents | None = None
    for line in text.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        try:
            if contents is None:
                header = json.loads(line)
                if not isinstance(header, dict) or header.get("format") != FORMAT or "limit_bytes" not in header:
                    return None
                contents = LedgerContents(limit_bytes=header["limit_bytes"], complete_bytes=0)
            else:
                _add_line(contents, line)
        except (ValidationError, ValueError):
            break
        contents.complete_bytes += len(line)
    return contents


def _add_line(contents: LedgerContents, line: bytes) -> None:
    if line.startswith(b'{"environment"'):
        contents.environment = json.loads(line)["environment"]
    elif line.startswith(b'{"began"'):
        began = json.loads(line)
        contents.began_at, contents.ended, contents.prober = began["began"], None, _prober(began)
        contents.records = resumable_records(contents.records)
    elif line.startswith(b'{"about"'):
        contents.about = _about(json.loads(line)["about"])
    elif line.startswith(b'{"ended"'):
        contents.ended = _endings().validate_python(json.loads(line)["ended"])
    else:
        contents.records.append(parse_record(line))


def _prober(began: dict[str, Any]) -> Prober | None:
    pid, host = began.get("pid"), began.get("host")
    return Prober(pid=pid, host=host) if isinstance(pid, int) and isinstance(host, str) else None


def resumable_records(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the records that a resumed probe builds on: all except crashes, which may have been fixed since.

    Refused precisions, and trials that the answer does not need, can crash without anything to fix."""
    return [
        record
        for record in records
        if record.outcome.kind is not Kind.CRASH or record.trial.aim is not Aim.ANSWER or record.refuses_precision
    ]


def about_document(about: About) -> dict[str, Any]:
    """Return plain data for a ledger line, with ranges as such and without lengths that the scan holds too."""
    space, scan = about.spec.space, about.spec.scan
    sizes = space.batch_sizes
    counted = scan is not None and space.length_counts == scan.lengths
    short = dataclasses.replace(space, batch_sizes=(), length_counts=() if counted else space.length_counts)
    shortened = dataclasses.replace(about, spec=dataclasses.replace(about.spec, space=short))
    document: dict[str, Any] = _abouts().dump_python(shortened, mode="json")
    document["batch_sizes"] = (
        {"range": [sizes.start, sizes.stop, sizes.step]} if isinstance(sizes, range) else {"list": list(sizes)}
    )
    document["counted"] = counted
    return document


def _about(document: dict[str, Any]) -> About | None:
    """Return None if another version of oomtune, with another kind of spec, wrote the line."""
    try:
        sizes, counted = document.pop("batch_sizes"), document.pop("counted")
        upgrade_spec(document["spec"])
        about = _abouts().validate_python(document)
    except (KeyError, TypeError, ValidationError):
        return None
    batch_sizes = range(*sizes["range"]) if "range" in sizes else tuple(sizes["list"])
    space = dataclasses.replace(about.spec.space, batch_sizes=batch_sizes)
    if counted and about.spec.scan is not None:
        space = dataclasses.replace(space, length_counts=about.spec.scan.lengths)
    return dataclasses.replace(about, spec=dataclasses.replace(about.spec, space=space))


def upgrade_spec(spec: dict[str, Any]) -> None:
    """Rewrite a stored spec in place, if a version wrote it whose models and datasets had a field for each source."""
    if "kind" not in spec["model"]:
        spec["model"] = _upgrade_model(spec["model"])
    if spec["dataset"] is not None and "kind" not in spec["dataset"]:
        spec["dataset"] = _upgrade_dataset(spec["dataset"])


def _upgrade_model(model: dict[str, Any]) -> dict[str, Any]:
    args = model["args"]
    if model["builder"] is not None:
        return {"kind": "builder", "function": model["builder"], "args": args}
    if model["keras_file"] is not None:
        return {"kind": "keras_file", "path": model["keras_file"], "allow_code": model["allow_code"]}
    if model["train_step"] is not None:
        return {"kind": "train_step", "factory": model["train_step"], "args": args}
    for kind in ("application", "script"):
        if model[kind] is not None:
            return {"kind": kind, **model[kind]}
    return {"kind": "layers", "layers": model["layers"]}


def _upgrade_dataset(dataset: dict[str, Any]) -> dict[str, Any] | None:
    tokenizer = dataset.pop("tokenizer")
    for kind, data in dataset.items():
        if data is not None:
            return (
                {"kind": kind, "function": data} if kind == "python" else {**data, "kind": kind, "tokenizer": tokenizer}
            )
    return None


def ended_from(result: ProbeResult) -> Ended:
    return Ended(
        at=result.probed_at,
        verdict=result.verdict,
        problem=result.problem,
        new_trials=result.new_trials,
        environment=result.environment,
        notices=result.notices,
    )


def ended_document(ended: Ended) -> dict[str, Any]:
    document: dict[str, Any] = _endings().dump_python(ended, mode="json")
    return document
