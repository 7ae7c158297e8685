"""What has changed since the probe: edits of the tuned config and its spec, versions, variables and the device."""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oomtune.commands.check.place import Place
from oomtune.commands.prepare import pinned_environment, versions
from oomtune.domain import Change, CheckResult
from oomtune.spec import Document, LoadedSpec, digest_of, load_spec
from oomtune.storage.tuned import Evidence, TunedConfig
from oomtune.units import format_bytes

_MAX_DIFF_LINES = 40
_DIGITS = 12

_NamedValues = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Which of the two files was edited since the answer was found, and what differs between them."""

    lines: tuple[str, ...] = ()
    """A diff in which the edited file comes second; if both were edited, that is the tuned config."""
    file_edited: bool = False
    spec_edited: bool = False
    keys_in_file: tuple[str, ...] = ()
    """The dotted keys at which an edited tuned config differs from the spec."""


def find_edits(file: Document, evidence: Evidence, source: Document | None) -> Edits:
    """Compare a tuned config with the spec it was found for, except for entries that flags had overridden."""
    values = without_answer(file)
    file_edited = evidence.spec_sha256 is not None and evidence.spec_sha256 != digest_of(values)
    if source is None:
        return Edits(file_edited=file_edited)
    spec_values = _with_overridden_entries(source, values, evidence.overridden)
    in_file, in_spec = (Path(file.origin).name, values), (Path(source.origin).name, spec_values)
    lines = _diff(in_spec, in_file) if file_edited else _diff(in_file, in_spec)
    return Edits(
        lines=lines,
        file_edited=file_edited,
        spec_edited=digest_of(spec_values) != evidence.spec_sha256 if file_edited else bool(lines),
        keys_in_file=tuple(_different_keys(values, spec_values)) if file_edited else (),
    )


def without_answer(document: Document) -> dict[str, Any]:
    return {key: value for key, value in document.values.items() if key != "tuned"}


def load_edited_spec(
    file: Document,
    evidence: Evidence,
    source: Document,
    *,
    settings: Sequence[str],
    flags: Mapping[str, tuple[str, Any]],
) -> LoadedSpec:
    """Load the edited source spec, with the overrides of its probe and, above those, the ones given now."""
    target, values = copy.deepcopy(source), without_answer(file)
    set_now = {setting.partition("=")[0] for setting in settings}
    probe_flags: dict[str, tuple[str, Any]] = {}
    for key in evidence.overridden:
        exists, value = _entry(values, key)
        if exists and key not in set_now and _override(target, key, value):
            probe_flags[key] = ("a flag of its probe", value)
    return load_spec(source, settings=settings, flags={**probe_flags, **flags})


def _diff(before: _NamedValues, after: _NamedValues) -> tuple[str, ...]:
    (old_name, old), (new_name, new) = before, after
    old_lines, new_lines = (yaml.safe_dump(values, sort_keys=True).splitlines() for values in (old, new))
    lines = tuple(difflib.unified_diff(old_lines, new_lines, fromfile=old_name, tofile=new_name, lineterm="", n=0))
    hidden = len(lines) - _MAX_DIFF_LINES
    return lines[:_MAX_DIFF_LINES] + ((f"... and {hidden} more lines",) if hidden > 0 else ())


def _different_keys(left: Any, right: Any, at: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the dotted keys at which two specs differ, as deep as both have entries to compare."""
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = [(key, left.get(key), right.get(key)) for key in {**left, **right}]
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = [(index, *both) for index, both in enumerate(zip(left, right, strict=True))]
    if not pairs or any("." in str(key) for key, *_ in pairs):  # a key with a dot has no dotted form
        pairs = []
        if left != right:
            yield ".".join(at)
    for key, left_value, right_value in pairs:
        yield from _different_keys(left_value, right_value, (*at, str(key)))


def _with_overridden_entries(source: Document, values: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return the values of the source with the overridden entries as they are in `values`."""
    target = copy.deepcopy(source)
    for key in keys:
        exists, value = _entry(values, key)
        if exists:
            _override(target, key, value)
        else:
            target.remove(key)
    return target.values


def _override(document: Document, key: str, value: Any) -> bool:
    """Set an entry as a flag would. Return False if the list it was in has become shorter."""
    try:
        document.override(key, copy.deepcopy(value), "a flag")
    except LookupError:
        return False
    return True


def _entry(values: Any, key: str) -> tuple[bool, Any]:
    """Return whether the entry at a dotted key exists, and its value."""
    for part in key.split("."):
        if isinstance(values, dict) and part in values:
            values = values[part]
        elif isinstance(values, list) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        else:
            return False, None
    return True, values


def changes_since(
    tuned: TunedConfig, document: Document, result: CheckResult, place: Place, environment: Mapping[str, str]
) -> tuple[Change, ...]:
    """Return what differs from when the answer was found and may explain a difference in memory.

    `environment` holds the variables that the trials of this check needed."""
    evidence, parameters = tuned.evidence, result.outcome.parameters if result.outcome else None
    before: dict[str, Any] = {
        **evidence.versions,
        "parameters": evidence.parameters,
        "memory limit": format_bytes(tuned.memory_limit_bytes),
        "the spec in this file": (evidence.spec_sha256 or "")[:_DIGITS] or None,
    }
    now: dict[str, Any] = {
        **versions(),
        "parameters": parameters,
        "memory limit": format_bytes(result.budget.limit_bytes),
        "the spec in this file": digest_of(without_answer(document))[:_DIGITS],
    }
    changes = [
        Change(what=what, before=str(before[what]), now=str(value))
        for what, value in now.items()
        if value is not None and before.get(what) not in (None, value)
    ]
    return (*changes, *_environment_changes(tuned.environment, environment), *_device_changes(tuned, place))


def _environment_changes(before: Mapping[str, str], required: Mapping[str, str]) -> list[Change]:
    """Return variables that the trials needed differently, or that this shell sets but the check did not use."""
    if not before:
        return []
    ran_with = {**pinned_environment(), **required}
    changes = []
    for name in dict.fromkeys((*before, *ran_with)):
        here = os.environ.get(name)
        if before.get(name) != ran_with.get(name):
            changes.append(Change(what=name, before=before.get(name, "not set"), now=ran_with.get(name, "not set")))
        elif here not in (None, before.get(name)):
            now = f"{here}, though the check ran with {before[name]},"
            changes.append(Change(what=name, before=before[name], now=now))
    return changes


def _device_changes(tuned: TunedConfig, place: Place) -> list[Change]:
    if place.other_device is not None:
        return [place.other_device]
    before, now = tuned.evidence.device_name, place.resolved.device.name
    return [Change(what="device", before=before, now=now)] if before != now else []
