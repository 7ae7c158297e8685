"""What is not as it was when the answer was found, and may explain a difference."""

from __future__ import annotations

import contextlib
import copy
import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from oomtune.checking.place import Place
from oomtune.domain import Change, CheckResult
from oomtune.errors import SpecProblem
from oomtune.preparing import pinned_environment, versions
from oomtune.spec import Document, LoadedSpec, digest_of, read_document
from oomtune.tuned import TunedConfig
from oomtune.units import format_bytes

_MOST_DIFF_LINES = 40
_DIGITS = 12


def changes_since(
    tuned: TunedConfig, document: Document, result: CheckResult, place: Place, environment: Mapping[str, str]
) -> tuple[Change, ...]:
    """`environment` is what had to be set for the check to run."""
    parameters = result.outcome.parameters if result.outcome else None
    values = {key: value for key, value in document.values.items() if key != "tuned"}
    now: dict[str, Any] = {
        **versions(),
        "parameters": parameters,
        "memory limit": format_bytes(result.budget.limit_bytes),
        "the spec in this file": digest_of(values)[:_DIGITS],
    }
    before = {
        **tuned.evidence,
        "memory limit": format_bytes(tuned.memory_limit_bytes),
        "the spec in this file": str(tuned.evidence.get("spec_sha256") or "")[:_DIGITS] or None,
    }
    found = [
        Change(what=what, before=str(before[what]), now=str(value))
        for what, value in now.items()
        if value is not None and before.get(what) not in (None, value)
    ]
    return (*found, *_of_the_environment(tuned.environment, environment), *_of_the_device(tuned, place))


def _of_the_environment(then: Mapping[str, str], needed: Mapping[str, str]) -> list[Change]:
    """What was set then is set for the check too; what the machine needed beside it, and what others set, is said."""
    ran_with = {**pinned_environment(), **needed}
    found = []
    for name in dict.fromkeys((*then, *ran_with)) if then else ():
        here = os.environ.get(name)
        if then.get(name) != ran_with.get(name):
            found.append(Change(what=name, before=then.get(name, "not set"), now=ran_with.get(name, "not set")))
        elif here not in (None, then.get(name)):
            found.append(Change(what=name, before=then[name], now=f"{here}, though the check ran with {then[name]},"))
    return found


def _of_the_device(tuned: TunedConfig, place: Place) -> list[Change]:
    name, now = str(tuned.evidence["device"].get("name", "")), place.resolved.device.name
    if place.other is not None:
        return [place.other]
    return [Change(what="device", before=name, now=now)] if name != now else []


def spec_lines_changed(loaded: LoadedSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """In which lines the spec that an answer was found for has been changed since, without what flags had set; and
    notices, should it be no spec any more. The tuned config does not depend on it: it may also be gone."""
    source = loaded.source
    if source is None or source == loaded.path.resolve() or not source.is_file():
        return (), ()
    try:
        now = read_document(source)
    except SpecProblem as error:
        return (), (f"the spec that this was tuned from can't be compared with it: {error.problems[0]}",)
    _set_alike(now, loaded.values, loaded.overridden)
    before, after = (yaml.safe_dump(each, sort_keys=True) for each in (loaded.values, now.values))
    lines = tuple(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), fromfile=loaded.path.name, tofile=source.name, lineterm="", n=0
        )
    )
    more = len(lines) - _MOST_DIFF_LINES
    return lines[:_MOST_DIFF_LINES] + ((f"... and {more} more lines",) if more > 0 else ()), ()


def _set_alike(document: Document, values: dict[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        there, value = _entry(values, key)
        if not there:
            document.remove(key)
            continue
        with contextlib.suppress(LookupError):  # a list that is shorter now: the diff says that
            document.override(key, copy.deepcopy(value), "a flag")


def _entry(values: Any, key: str) -> tuple[bool, Any]:
    """Is there such an entry, and what is it?"""
    for part in key.split("."):
        if isinstance(values, dict) and part in values:
            values = values[part]
        elif isinstance(values, list) and part.isdecimal() and int(part) < len(values):
            values = values[int(part)]
        else:
            return False, None
    return True, values
