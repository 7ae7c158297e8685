"""What a check found, as rows of words and as the JSON document."""

from __future__ import annotations

from typing import Any

from oomtune.domain import Change, CheckResult, CheckVerdict
from oomtune.report.check_words import certainty, words
from oomtune.report.document import candidate_document, json_document, problem_document
from oomtune.units import format_bytes, format_share


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
