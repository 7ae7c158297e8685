"""What a ledger holds, line by line: a header, what was probed, when it began and ended, and every trial.

Enough of it is kept to show a probe again without its spec, its data or its machine.
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
    """What was probed, on what, and where its answer goes."""

    spec: ProbeSpec
    spec_path: str
    spec_sha256: str
    values: dict[str, Any]
    """The spec as it was written."""
    device: Device
    headroom: float
    environment: dict[str, Any] = field(default_factory=dict)
    output: str | None = None
    origin: dict[str, Any] = field(default_factory=dict)
    """What its tuned config says of the spec that it was found for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a probe ended; there is none while it runs, nor after it was killed."""

    at: str
    verdict: Verdict
    problem: TrialError | None = None
    new_trials: int = 0
    environment: dict[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@cache
def _abouts() -> TypeAdapter[About]:
    # Made when it is first used: it takes time, and a worker can start meanwhile.
    return TypeAdapter(About)


@cache
def _endings() -> TypeAdapter[Ended]:
    return TypeAdapter(Ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prober:
    """The process that probes, so that one who lists ledgers can see whether it still does without taking a lock."""

    pid: int
    host: str


@dataclass(slots=True, kw_only=True)
class Kept:
    """A ledger that was read. `good_bytes` is up to where its lines are whole."""

    limit_bytes: int
    good_bytes: int
    records: list[TrialRecord] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """What had to be set for trials to run on this machine."""
    about: About | None = None
    began_at: str = ""
    prober: Prober | None = None
    ended: Ended | None = None


def read_kept(text: bytes) -> Kept | None:
    """What the lines say up to the first that is not whole; None when this is no ledger."""
    kept: Kept | None = None
    for line in text.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        try:
            if kept is None:
                header = json.loads(line)
                if not isinstance(header, dict) or header.get("format") != FORMAT or "limit_bytes" not in header:
                    return None
                kept = Kept(limit_bytes=header["limit_bytes"], good_bytes=0)
            else:
                _take(kept, line)
        except (ValidationError, ValueError):
            break
        kept.good_bytes += len(line)
    return kept


def _take(kept: Kept, line: bytes) -> None:
    if line.startswith(b'{"environment"'):
        kept.environment = json.loads(line)["environment"]
    elif line.startswith(b'{"began"'):
        began = json.loads(line)
        kept.began_at, kept.ended, kept.prober = began["began"], None, _prober(began)
        kept.records = that_hold(kept.records)
    elif line.startswith(b'{"about"'):
        kept.about = _about(json.loads(line)["about"])
    elif line.startswith(b'{"ended"'):
        kept.ended = _endings().validate_python(json.loads(line)["ended"])
    else:
        kept.records.append(parse_record(line))


def _prober(began: dict[str, Any]) -> Prober | None:
    pid, host = began.get("pid"), began.get("host")
    return Prober(pid=pid, host=host) if isinstance(pid, int) and isinstance(host, str) else None


def that_hold(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The records that a resumed probe goes on from. A crash may have been mended since, outside the spec; it is run
    again. That a model can't train in half precision, or in a way that the answer does not need, is no such crash."""
    return [
        record
        for record in records
        if record.outcome.kind is not Kind.CRASH or record.trial.aim is not Aim.ANSWER or record.refuses_precision
    ]


def about_document(about: About) -> dict[str, Any]:
    """The same as plain data, without what would make it long: sizes that are a range, and lengths held twice."""
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
    """None when another version of oomtune wrote it, whose specs were other ones."""
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


def ended_as(result: ProbeResult) -> Ended:
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
