"""What a check found, in words: what every way of showing it agrees on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomtune.domain import Change, CheckResult, CheckVerdict, Kind
from oomtune.report.document import candidate_document, json_document, problem_document
from oomtune.units import format_bytes, format_share

# A CPU that stands in for a card has found room for 15 to 50 % more than such cards really hold.
_SURE, _LIKELY = 1.5, 1.15
SPEC_DIFFERS = "The spec that it was tuned from has been changed since:"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckWords:
    """The verdict in one line, and what to do next; empty when all is well."""

    sentence: str
    hint: str = ""


def words(result: CheckResult) -> CheckWords:
    """What is said of a verdict: the one place that every way of showing it takes its words from."""
    match result.verdict:
        case CheckVerdict.FITS:
            return CheckWords(sentence=f"{result.candidate} {'still fits' if result.was_tuned else 'fits'}")
        case CheckVerdict.UPDATED:
            return CheckWords(sentence=f"searched anew: {result.candidate} fits; {result.path} is rewritten")
        case CheckVerdict.USES_MORE:
            return CheckWords(
                sentence=f"{result.candidate} fits, but uses {result.growth or 0:.1%} more memory than it did",
                hint=f"accept it with --tolerance {(result.growth or 0) + 0.01:.2f}, or tune again: --update",
            )
        case CheckVerdict.DOES_NOT_FIT:
            return _does_not_fit(result)
        case CheckVerdict.WRONG_DEVICE:
            return CheckWords(
                sentence="this is not the device that the config was tuned on",
                hint="check it on that device, or here with --allow-device-change",
            )
        case CheckVerdict.BROKEN:
            left = f"; {result.path} is left as it is"
            sentence = "the model or its data is broken" if result.updated is None else f"the new search failed{left}"
            return CheckWords(sentence=sentence, hint=result.problem.hint if result.problem else "")


def _does_not_fit(result: CheckResult) -> CheckWords:
    outcome = result.deciding
    what = str(result.candidate) if outcome is result.outcome else f"with its buckets by turns, {result.candidate}"
    if result.updated is not None:
        return CheckWords(
            sentence=f"nothing fits any more at {result.candidate.lane}; {result.path} is left as it is",
            hint=f"search all that its spec allows: oomtune probe {result.path}; or give it more memory",
        )
    if outcome is not None and outcome.kind is Kind.TIMEOUT:
        hint = result.problem.hint if result.problem else ""
        return CheckWords(sentence=f"{what} did not end in time, which says nothing of its memory", hint=hint)
    if result.was_tuned:
        return CheckWords(
            sentence=f"{what} no longer fits", hint="tune again: oomtune check --update, or find what changed"
        )
    return CheckWords(sentence=f"{what} does not fit", hint="find what fits: oomtune probe")


def rows(result: CheckResult) -> list[tuple[str, str]]:
    limit, peak = result.budget.limit_bytes, result.outcome.peak_bytes if result.outcome else None
    found = [("configuration", str(result.candidate))]
    if result.candidate_before is not None:
        found.append(("before", str(result.candidate_before)))
    if peak is not None:
        found.append(("peak memory", f"{format_bytes(peak)} of {format_bytes(limit)} ({peak / limit:.0%})"))
    if peak is not None and peak > result.budget.budget_bytes and result.exit_code == 0:
        over = f"{format_bytes(peak - result.budget.budget_bytes)} of it in use, which is within the tolerance"
        found.append(("headroom", over))
    if result.expected_peak_bytes is not None:
        allowed = format_share(result.tolerance)
        growth = "" if result.growth is None else f": {result.growth:+.1%}, {allowed} allowed"
        found.append(("when it was tuned", f"{format_bytes(result.expected_peak_bytes)}{growth}"))
    elif result.not_compared:
        found.append(("when it was tuned", result.not_compared))
    if result.buckets_outcome is not None:
        found.append(("buckets by turns", result.buckets_outcome.kind.value.replace("_", " ")))
    if result.outcome and result.outcome.step_ms:
        found.append(("step", f"{result.outcome.step_ms:.1f} ms"))
    if result.device.stands_in_for is not None and result.verdict is not CheckVerdict.WRONG_DEVICE:
        found.append(("how sure", certainty(result)))
    return found + [("changed", str(change)) for change in result.changes]


def certainty(result: CheckResult) -> str:
    """How far a verdict that a CPU gave in place of a card can be relied on."""
    card, outcome = result.device.stands_in_for, result.deciding
    if outcome is not None and outcome.kind is Kind.DEVICE_OOM:
        return f"sure: what does not fit here does not fit a {card} either"
    if outcome is None or outcome.kind is not Kind.FITS or not outcome.peak_bytes:
        return f"not known: the run did not come to its end, which says nothing of a {card}"
    room = result.budget.budget_bytes / outcome.peak_bytes
    if room >= _SURE:
        return f"sure: a {card} may need 50 % more than the CPU, and there is room for that"
    if room >= _LIKELY:
        return f"likely: a {card} may need 15 to 50 % more than the CPU, and there is room for {room - 1:.0%}"
    return f"not sure: a {card} may need 15 to 50 % more than the CPU, and there is room for only {room - 1:.0%}"


def check_document(result: CheckResult) -> dict[str, Any]:
    """The JSON document of a check."""
    outcome, deciding, said = result.outcome, result.deciding, words(result)
    entries = {
        "best": candidate_document(result.candidate),
        "memory": {
            "limit_bytes": result.budget.limit_bytes,
            "budget_bytes": result.budget.budget_bytes,
            "peak_bytes": outcome.peak_bytes if outcome else None,
            "expected_peak_bytes": result.expected_peak_bytes,
            "growth": result.growth,
            "tolerance": result.tolerance,
        },
        "throughput": {"step_ms": outcome.step_ms if outcome else None},
        "outcome": deciding.kind.value if deciding else None,
        "certainty": certainty(result) if result.device.stands_in_for else None,
        "changes": [_change_document(change) for change in result.changes],
        "spec_diff": list(result.spec_diff),
        "updated": None
        if result.updated is None
        else {
            "best": candidate_document(result.updated.best.candidate) if result.updated.best else None,
            "tuned_path": result.updated.tuned_path,
            "before": candidate_document(result.candidate_before) if result.candidate_before else None,
            "trials": result.updated.new_trials,
        },
        "device": {
            "kind": result.device.kind,
            "name": result.device.name,
            "stands_in_for": result.device.stands_in_for,
        },
        "notices": list(result.notices),
        "message": said.sentence,
        "hint": said.hint,
    }
    problem = None if result.problem is None else problem_document(result.problem)
    return json_document("check", result.exit_code, result.verdict.value, entries, problem)


def _change_document(change: Change) -> dict[str, str]:
    return {"what": change.what, "before": change.before, "now": change.now}
