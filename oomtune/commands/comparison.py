"""Compare two probes: what was asked, where each ran, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oomtune.domain import ProbeResult, RematMode
from oomtune.units import format_bytes, format_ms

_NOT_SET = "—"  # "none" may stand in a spec itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    section: str
    what: str
    before: Any
    after: Any
    words: tuple[str, str]
    """Both values as people read them."""

    @property
    def change(self) -> str:
        """The relative change of a measured number; empty for anything else."""
        if self.section == "spec" or type(self.before) not in (int, float) or type(self.after) not in (int, float):
            return ""
        return f"{self.after / self.before - 1:+.1%}" if self.before else ""


def headings(before: ProbeResult, after: ProbeResult) -> tuple[str, str]:
    """Return the name and time of both probes, or their ledgers when these are equal."""
    first, second = (f"{result.spec.name}, {result.probed_at}" for result in (before, after))
    if first != second:
        return first, second
    return before.ledger_path or first, after.ledger_path or second


def differences(
    before: ProbeResult, after: ProbeResult, before_values: Mapping[str, Any], after_values: Mapping[str, Any]
) -> list[Difference]:
    """Return everything that differs; the values are the specs as they were written."""
    return [
        *spec_differences(before_values, after_values),
        *_compare("environment", _circumstances(before), _circumstances(after)),
        *_compare("answer", _answer(before), _answer(after)),
        *_compare("largest batch", _largest_batches(before), _largest_batches(after)),
    ]


def spec_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return what differs between two specs as they were written."""
    return list(_compare("spec", _flatten(before), _flatten(after)))


def _round(value: float) -> str:
    return f"{value:,.0f}"


_FORMATS: dict[tuple[str, str], Callable[[Any], str]] = {
    ("environment", "limit"): format_bytes,
    ("environment", "budget"): format_bytes,
    ("answer", "peak"): format_bytes,
    ("answer", "step"): format_ms,
    ("answer", "samples a second"): _round,
}


def _compare(section: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for what in dict.fromkeys((*before, *after)):
        old, new = before.get(what), after.get(what)
        if old != new:
            to_text = _FORMATS.get((section, what), str)
            first, second = (_NOT_SET if value is None else to_text(value) for value in (old, new))
            yield Difference(section=section, what=what, before=old, after=new, words=(first, second))


def _flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Return every entry under its dotted key."""
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if entries is None:
        return {path: value}
    flat: dict[str, Any] = {}
    for key, entry in entries:
        dotted = f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}".lstrip(".")
        flat |= _flatten(entry, dotted)
    return flat


def _circumstances(result: ProbeResult) -> dict[str, Any]:
    device = result.device
    return {
        "device": f"{device.kind.upper()} {device.name}",
        "in place of": device.stands_in_for,
        "limit": result.budget.limit_bytes,
        "budget": result.budget.budget_bytes,
        **_flatten(result.environment),
    }


def _answer(result: ProbeResult) -> dict[str, Any]:
    best = result.best
    answer: dict[str, Any] = {"verdict": result.verdict.value}
    if best is not None:
        candidate = best.candidate
        answer |= {
            "batch size": candidate.batch_size,
            "sequence length": candidate.sequence_length,
            "precision": candidate.precision,
            # A probe without an answer has no remat either, so "none" is no difference from it.
            "remat": None if candidate.remat is RematMode.NONE else str(candidate.remat),
            "optimizer": candidate.optimizer,
            "confirmed": best.confirmed_by is not None,
            "peak": best.peak_bytes,
            "step": best.confirmed_step_ms,
            "samples a second": best.samples_per_second,
        }
    if result.buckets is not None:
        pairs = zip(result.buckets.batch_sizes, result.buckets.boundaries, strict=True)
        answer["buckets"] = ", ".join(f"{size} up to {length}" for size, length in pairs)
    return answer | {"trials": len(result.records)}


def _largest_batches(result: ProbeResult) -> dict[str, Any]:
    return {str(point.lane): point.batch_size for point in result.frontier}
