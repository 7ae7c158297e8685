"""The tuned config: the complete spec with the answer and its evidence, as written and as read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from oomtune.domain import ProbeResult, RematLayers
from oomtune.errors import UsageProblem
from oomtune.spec.yaml_text import entry_at, parse_text
from oomtune.storage.atomic import check_writable, write_whole

FORMAT = 1
_MAX_BYTES = 4 * 1024**2
_VERSIONS = ("oomtune", "tensorflow", "keras")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen when the answer ran, and what it ran with. None and empty where the file does not say."""

    confirmed: bool
    device_kind: str
    memory_limit_bytes: int
    device_name: str = ""
    stands_in_for: str | None = None
    """The card whose budget the CPU was given."""
    peak_bytes: int | None = None
    parameters: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of oomtune, TensorFlow and Keras."""
    needs_environment: dict[str, str] = field(default_factory=dict)
    spec: str | None = None
    """The path of the spec that people edit, relative to the tuned config."""
    spec_sha256: str | None = None
    overridden: tuple[str, ...] = ()
    """The dotted keys whose values do not come from that spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedConfig:
    """The answer, for a training script. `oomtune.keras` has the functions that apply it."""

    batch_size: int
    sequence_length: int | None
    precision: str
    remat: str
    """`none`, `full`, or the recomputed layers, separated by commas."""
    gradient_accumulation_steps: int
    effective_batch_size: int
    evidence: Evidence
    allocator: str = "default"
    """The GPU allocator, as in `device.allocator` of the spec."""
    memory_growth: bool = False
    """Whether the GPU's memory grows with use instead of being taken up to the limit at once."""
    bucket_boundaries: tuple[int, ...] = ()
    """The longest sample of each bucket, if lengths vary."""
    bucket_batch_sizes: tuple[int, ...] = ()
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def confirmed(self) -> bool:
        return self.evidence.confirmed

    @property
    def device_kind(self) -> str:
        return self.evidence.device_kind

    @property
    def memory_limit_bytes(self) -> int:
        return self.evidence.memory_limit_bytes

    @property
    def stands_in_for(self) -> str | None:
        return self.evidence.stands_in_for

    @property
    def environment(self) -> dict[str, str]:
        return self.evidence.needs_environment

    @property
    def peak_bytes(self) -> int | None:
        return self.evidence.peak_bytes


def tuned_values(
    values: dict[str, Any],
    result: ProbeResult,
    *,
    output: Path,
    spec_sha256: str,
    origin: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the spec's values followed by the block `tuned`; `origin` comes from `origin_from`."""
    assert result.best is not None, "only a configuration that ran is ever written"
    folder = _relative_spec_folder(output, result.spec.folder)
    candidate = result.best.candidate
    steps = result.spec.training.accumulation_steps(candidate.batch_size)
    tuned: dict[str, Any] = {"format": FORMAT, "batch_size": candidate.batch_size}
    if candidate.sequence_length is not None:
        tuned["sequence_length"] = candidate.sequence_length
    tuned |= {
        "precision": candidate.precision,
        "remat": list(remat.patterns) if isinstance(remat := candidate.remat, RematLayers) else str(remat),
        "gradient_accumulation_steps": steps,
        "effective_batch_size": steps * candidate.batch_size,
    }
    if candidate.optimizer is not None:
        tuned["optimizer"] = TypeAdapter(Any).dump_python(result.spec.training.optimizer_of(candidate), mode="json")
    if result.buckets is not None:
        tuned["bucket_boundaries"] = list(result.buckets.boundaries)
        tuned["bucket_batch_sizes"] = list(result.buckets.batch_sizes)
    if folder is not None:
        tuned["folder"] = folder
    tuned["evidence"] = _evidence(result) | {**origin, "spec_sha256": spec_sha256, "probed_at": result.probed_at}
    return {**values, "tuned": tuned}


def _evidence(result: ProbeResult) -> dict[str, Any]:
    best = result.best
    assert best is not None, "only a configuration that ran is ever written"
    confirm = best.confirmed_by.outcome if best.confirmed_by else None
    device: dict[str, Any] = {
        "kind": result.device.kind,
        "name": result.device.name,
        "memory_limit_bytes": result.budget.limit_bytes,
    }
    if result.device.stands_in_for:
        device["stands_in_for"] = result.device.stands_in_for
    evidence: dict[str, Any] = {"confirmed": confirm is not None}
    if result.problem is not None:
        evidence["stopped"] = result.problem.message
    evidence |= {"device": device, "peak_bytes": best.peak_bytes}
    if best.confirmed_step_ms and best.samples_per_second:
        evidence["step_ms"] = best.confirmed_step_ms
        evidence["samples_per_second"] = round(best.samples_per_second, 1)
    if result.remat_slowdown is not None:
        evidence["remat_slowdown"] = round(result.remat_slowdown, 3)
    evidence |= {
        "steps_run": confirm.steps_run if confirm else 0,
        "validation_run": bool(confirm and confirm.validated),
        "jit_compile": confirm.jit_compile if confirm else None,
    }
    if confirm and confirm.parameters is not None:
        evidence["parameters"] = confirm.parameters
    if confirm and confirm.leak_bytes_per_step:
        evidence["leak_bytes_per_step"] = confirm.leak_bytes_per_step
    if confirm and confirm.findings:
        evidence["findings"] = [dataclasses.asdict(finding) for finding in confirm.findings]
    if result.refused_precisions:
        evidence["refused_precisions"] = dict(result.refused_precisions)
    if result.next_larger is not None:
        larger, kind = result.next_larger
        evidence["next_larger"] = {"batch_size": larger.batch_size, "outcome": kind.value}
    return evidence | {"trials": len(result.records)} | _data_evidence(result) | result.environment


def _data_evidence(result: ProbeResult) -> dict[str, Any]:
    """Return how the answer treats the data: the share of tokens that is cut off, and the share of padding."""
    scan, best = result.spec.scan, result.best
    if scan is None or best is None:
        return {}
    data: dict[str, Any] = {"samples": scan.samples}
    if not scan.all_read:
        data["samples_read"] = scan.read
    length = best.candidate.sequence_length
    if scan.lengths and length is not None:
        data["longest"] = scan.lengths[-1][0]
        data["share_cut"] = round(scan.share_cut(length), 4)
        data["share_padding"] = round(scan.share_padding(length), 4)
    if result.buckets is not None:
        data["share_padding_in_buckets"] = round(result.buckets.share_padding, 4)
    return {"data": data}


def _relative_spec_folder(output: Path, spec_folder: str) -> str | None:
    """Return the spec's folder relative to the tuned config, or None if they share a folder."""
    output_folder = output.resolve().parent
    return None if output_folder == Path(spec_folder) else os.path.relpath(spec_folder, output_folder)


def origin_from(output: Path, source: Path | None, overridden: Sequence[str]) -> dict[str, Any]:
    """Return the evidence about the spec that people edit: its path, and the entries that flags overrode."""
    if source is None:
        return {}
    spec = Path(os.path.relpath(source, output.resolve().parent)).as_posix()
    return {"spec": spec, "overridden": list(overridden)} if overridden else {"spec": spec}


def tuned_beside(path: Path) -> Path:
    """Return where the answer is written by default: beside the spec or the script."""
    return path.parent / f"{path.stem}.tuned.yaml"


def check_output(path: Path, *, force: bool) -> None:
    """Raise unless the answer can be written here without replacing a file that no probe wrote."""
    check_writable(path, flag="-o", force=force, is_ours=_is_ours)


def _is_ours(path: Path) -> bool:
    """Return True if the file holds an answer that a probe wrote."""
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return False
    try:
        values = parse_text(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
    evidence = entry_at(values, "tuned", "evidence")
    return isinstance(evidence, dict) and "oomtune" in evidence


def write_tuned(path: Path, text: str) -> None:
    """Write a tuned config completely or not at all: an earlier file stays until the new one is complete."""
    hint = "make room or give another file with -o, and run the same command: no trial is run again"
    write_whole(path, text, hint=hint)


def tuned_text(values: dict[str, Any]) -> str:
    """Return the tuned config as YAML."""
    text = "# Written by oomtune probe. The answer is in the block `tuned`; the rest is the spec it was found for.\n"
    return text + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)


def load_tuned(path: str | Path) -> TunedConfig:
    """Return the answer in a tuned config. Raises `UsageProblem` if the file holds none."""
    try:
        values = parse_text(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageProblem(f"no such file: {path}", hint="make it with: oomtune probe SPEC") from None
    except (yaml.YAMLError, ValueError, RecursionError, OSError):
        raise UsageProblem(f"{path} can't be read as YAML") from None
    return tuned_config(values, path)


def tuned_config(values: Any, path: str | Path) -> TunedConfig:
    """Return the answer in the parsed values of a tuned config; errors name `path`."""
    try:
        tuned = _parse_tuned(values)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UsageProblem(f"{path} holds no tuned config", hint="make one with: oomtune probe SPEC") from None
    if len(tuned.bucket_boundaries) != len(tuned.bucket_batch_sizes):
        raise UsageProblem(
            f"{path}: tuned.bucket_batch_sizes: expected one for each of the {len(tuned.bucket_boundaries)} in "
            f"bucket_boundaries, found {len(tuned.bucket_batch_sizes)}",
            hint="restore what the probe wrote, or probe again",
        )
    return tuned


def _parse_tuned(values: dict[str, Any]) -> TunedConfig:
    """Raise one of the built-in errors if an entry is missing or has another type."""
    tuned, device = values["tuned"], values.get("device") or {}
    if tuned["format"] != FORMAT:
        raise KeyError("format")
    return TunedConfig(
        batch_size=tuned["batch_size"],
        sequence_length=tuned.get("sequence_length"),
        precision=tuned["precision"],
        remat=tuned["remat"] if isinstance(tuned["remat"], str) else ",".join(tuned["remat"]),
        gradient_accumulation_steps=tuned["gradient_accumulation_steps"],
        effective_batch_size=tuned["effective_batch_size"],
        evidence=_parse_evidence(tuned["evidence"]),
        allocator=device.get("allocator", "default"),
        memory_growth=device.get("memory_growth", False),
        bucket_boundaries=tuple(tuned.get("bucket_boundaries") or ()),
        bucket_batch_sizes=tuple(tuned.get("bucket_batch_sizes") or ()),
        training=(values.get("training") or {}) | ({"optimizer": tuned["optimizer"]} if "optimizer" in tuned else {}),
    )


def _parse_evidence(evidence: dict[str, Any]) -> Evidence:
    device, peak, parameters = evidence["device"], evidence.get("peak_bytes"), evidence.get("parameters")
    spec, digest, overridden = evidence.get("spec"), evidence.get("spec_sha256"), evidence.get("overridden")
    return Evidence(
        confirmed=evidence["confirmed"],
        device_kind=device["kind"],
        memory_limit_bytes=int(device["memory_limit_bytes"]),
        device_name=str(device.get("name", "")),
        stands_in_for=device.get("stands_in_for"),
        peak_bytes=peak if isinstance(peak, int) and peak > 0 else None,
        parameters=parameters if isinstance(parameters, int) else None,
        versions={name: str(evidence[name]) for name in _VERSIONS if evidence.get(name) is not None},
        needs_environment={name: str(value) for name, value in (evidence.get("needs_environment") or {}).items()},
        spec=None if spec is None else str(spec),
        spec_sha256=None if digest is None else str(digest),
        overridden=tuple(map(str, overridden)) if isinstance(overridden, list) else (),
    )
