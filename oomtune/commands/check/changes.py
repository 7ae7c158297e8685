"""What is not as it was when the answer was found, and may explain a difference."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from oomtune.commands.check.origin import without_answer
from oomtune.commands.check.place import Place
from oomtune.commands.prepare import pinned_environment, versions
from oomtune.domain import Change, CheckResult
from oomtune.spec import Document, digest_of
from oomtune.storage.tuned import TunedConfig
from oomtune.units import format_bytes

_DIGITS = 12


def changes_since(
    tuned: TunedConfig, document: Document, result: CheckResult, place: Place, environment: Mapping[str, str]
) -> tuple[Change, ...]:
    """`environment` is what had to be set for the check to run."""
    parameters = result.outcome.parameters if result.outcome else None
    now: dict[str, Any] = {
        **versions(),
        "parameters": parameters,
        "memory limit": format_bytes(result.budget.limit_bytes),
        "the spec in this file": digest_of(without_answer(document))[:_DIGITS],
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
