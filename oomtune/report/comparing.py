"""What changed from one probe to another: what was asked, where it ran, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oomtune.domain import ProbeResult, RematMode
from oomtune.units import format_bytes, format_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    section: str
    what: str
    before: Any
    after: Any
    words: tuple[str, str]
    """The same two as people read them."""

    @property
    def by(self) -> str:
        """By how much, where both are numbers that were measured."""
        if self.section == "spec" or type(self.before) not in (int, float) or type(self.after) not in (int, float):
            return ""
        if not self.before:
            return ""
        return f"{self.after / self.before - 1:+.1%}"


_NOT_THERE = "—"
"""What is not set. The word none may stand in a spec itself."""


def headings(before: ProbeResult, after: ProbeResult) -> tuple[str, str]:
    """What the two are called: the names of their specs and when they ended, or their ledgers where these are alike."""
    first, second = (f"{result.spec.name}, {result.probed_at}" for result in (before, after))
    if first != second:
        return first, second
    return before.ledger_path or first, after.ledger_path or second


def differences(
    before: ProbeResult, after: ProbeResult, before_values: Mapping[str, Any], after_values: Mapping[str, Any]
) -> list[Difference]:
    """All that is not the same; `values` are the specs as they were written."""
    return [
        *spec_differences(before_values, after_values),
        *_of("environment", _where(before), _where(after), {"limit": format_bytes, "budget": format_bytes}),
        *_of(
            "answer",
            _answer(before),
            _answer(after),
            {"peak": format_bytes, "step": format_ms, "samples a second": _round},
        ),
        *_of("largest batch", _lanes(before), _lanes(after)),
    ]


def spec_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """What differs between two specs as they were written."""
    return list(_of("spec", _flat(before), _flat(after)))


def _of(
    section: str, before: Mapping[str, Any], after: Mapping[str, Any], formats: Mapping[str, Any] | None = None
) -> Iterator[Difference]:
    for what in dict.fromkeys((*before, *after)):
        one, other = before.get(what), after.get(what)
        if one != other:
            shown = (formats or {}).get(what, str)
            words = tuple(_NOT_THERE if value is None else shown(value) for value in (one, other))
            yield Difference(section=section, what=what, before=one, after=other, words=(words[0], words[1]))


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every entry by its dotted key."""
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if entries is None:
        return {path: value}
    found: dict[str, Any] = {}
    for key, entry in entries:
        dotted = f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}".lstrip(".")
        found |= _flat(entry, dotted)
    return found


def _where(result: ProbeResult) -> dict[str, Any]:
    device = result.device
    return {
        "device": f"{device.kind.upper()} {device.name}",
        "in place of": device.stands_in_for,
        "limit": result.budget.limit_bytes,
        "budget": result.budget.budget_bytes,
        **_flat(result.environment),
    }


def _answer(result: ProbeResult) -> dict[str, Any]:
    best = result.best
    found: dict[str, Any] = {"verdict": result.verdict.value}
    if best is not None:
        candidate = best.candidate
        found |= {
            "batch size": candidate.batch_size,
            "sequence length": candidate.sequence_length,
            "precision": candidate.precision,
            # Where there is no answer there is none either: that is no change.
            "remat": None if candidate.remat is RematMode.NONE else str(candidate.remat),
            "optimizer": candidate.optimizer,
            "confirmed": best.confirmed_by is not None,
            "peak": best.peak_bytes,
            "step": best.confirmed_step_ms,
            "samples a second": best.samples_per_second,
        }
    if result.buckets is not None:
        pairs = zip(result.buckets.batch_sizes, result.buckets.boundaries, strict=True)
        found["buckets"] = ", ".join(f"{size} up to {length}" for size, length in pairs)
    return found | {"trials": len(result.records)}


def _lanes(result: ProbeResult) -> dict[str, Any]:
    return {str(point.lane): point.batch_size for point in result.frontier}


def _round(value: float) -> str:
    return f"{value:,.0f}"
