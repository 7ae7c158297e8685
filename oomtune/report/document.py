"""The JSON document that a command prints with `--json`, whatever happens."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from oomtune import __version__
from oomtune.domain import (
    Buckets,
    Candidate,
    Device,
    FrontierPoint,
    Outcome,
    Point,
    ProbeResult,
    Scan,
    TrialError,
    TrialRecord,
)
from oomtune.errors import INTERRUPTED, OomtuneError, SpecProblem
from oomtune.report.findings import findings
from oomtune.report.model import LengthRow, length_rows
from oomtune.report.trial_entries import TrialEntry, trial_entries

FORMAT = 1


def json_document(
    command: str, exit_code: int, verdict: str, entries: Mapping[str, Any], error: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a command found, between what every document begins and ends with. The exit code is the process's own."""
    head = {
        "format": FORMAT,
        "oomtune": __version__,
        "command": command,
        "exit_code": exit_code,
        "verdict": verdict,
    }
    return {**head, **entries, "error": error}


def probe_document(result: ProbeResult) -> dict[str, Any]:
    entries = {**_answer(result), **_evidence(result), **_circumstances(result)}
    problem = None if result.problem is None else problem_document(result.problem)
    return json_document("probe", result.verdict.exit_code, result.verdict.value, entries, problem)


def report_document(result: ProbeResult) -> dict[str, Any]:
    """The same of a probe that is shown again: `report` itself ends well, however the probe did."""
    shown = {"command": "report", "exit_code": 0, "probe_exit_code": result.verdict.exit_code}
    return {**probe_document(result), **shown}


def _answer(result: ProbeResult) -> dict[str, Any]:
    best = result.best
    confirm = best.confirmed_by.outcome if best and best.confirmed_by else None
    return {
        "best": candidate_document(best.candidate) if best else None,
        "accumulation": _accumulation(result, best.candidate) if best else None,
        "confirmed": confirm is not None,
        "memory": {
            "limit_bytes": result.budget.limit_bytes,
            "budget_bytes": result.budget.budget_bytes,
            "peak_bytes": best.peak_bytes if best else None,
        },
        "throughput": {
            "step_ms": best.confirmed_step_ms if best else None,
            "samples_per_second": best.samples_per_second if best else None,
            "remat_slowdown": result.remat_slowdown,
        },
        "leak_bytes_per_step": confirm.leak_bytes_per_step if confirm else 0,
        "findings": [dataclasses.asdict(finding) for finding in findings(result)],
        "refused_precisions": dict(result.refused_precisions),
    }


def _accumulation(result: ProbeResult, candidate: Candidate) -> dict[str, int]:
    """How batches add up, as the tuned config has it."""
    steps = result.spec.training.accumulation_steps(candidate.batch_size)
    return {"gradient_accumulation_steps": steps, "effective_batch_size": steps * candidate.batch_size}


def _evidence(result: ProbeResult) -> dict[str, Any]:
    """What the answer stands on."""
    return {
        "trials": [
            trial_document(record, entry) for record, entry in zip(result.records, trial_entries(result), strict=True)
        ],
        "new_trials": result.new_trials,
        "frontier": [_frontier_document(point) for point in result.frontier],
        "buckets": None if result.buckets is None else _buckets_document(result.buckets),
        "dataset": None if result.spec.scan is None else _scan_document(result.spec.scan, length_rows(result)),
    }


def _circumstances(result: ProbeResult) -> dict[str, Any]:
    """Where it ran, and where it is written."""
    return {
        "tuned_path": result.tuned_path,
        "ledger_path": result.ledger_path,
        "environment": {**result.environment, "device": device_document(result.device)},
        "notices": list(result.notices),
    }


# A command that ended before it had a result has all its keys nonetheless.
_NO_PROBE: dict[str, Any] = {
    "best": None,
    "accumulation": None,
    "confirmed": False,
    "memory": {"limit_bytes": None, "budget_bytes": None, "peak_bytes": None},
    "throughput": {"step_ms": None, "samples_per_second": None, "remat_slowdown": None},
    "leak_bytes_per_step": 0,
    "findings": [],
    "refused_precisions": {},
    "trials": [],
    "new_trials": 0,
    "frontier": [],
    "buckets": None,
    "dataset": None,
    "tuned_path": None,
    "ledger_path": None,
    "environment": {},
    "notices": [],
}

_NO_CHECK: dict[str, Any] = {
    "best": None,
    "memory": dict.fromkeys(
        ("limit_bytes", "budget_bytes", "peak_bytes", "expected_peak_bytes", "growth", "tolerance")
    ),
    "throughput": {"step_ms": None},
    "outcome": None,
    "certainty": None,
    "changes": [],
    "spec_diff": [],
    "updated": None,
    "device": None,
    "notices": [],
    "message": "",
    "hint": "",
}
_NO_RESULT = {"probe": _NO_PROBE, "check": _NO_CHECK}


def error_document(command: str, exit_code: int, error: OomtuneError) -> dict[str, Any]:
    verdict = "failed" if exit_code != INTERRUPTED else "interrupted"
    said = {"code": error.code, "message": error.message, "hint": error.hint, "where": _where(error)}
    return json_document(command, exit_code, verdict, _NO_RESULT.get(command, {}), said)


def _buckets_document(buckets: Buckets) -> dict[str, Any]:
    return {
        "boundaries": list(buckets.boundaries),
        "batch_sizes": list(buckets.batch_sizes),
        "padding_share": buckets.share_padding,
        "peak_bytes": buckets.confirmed_by.outcome.peak_bytes,
    }


def _scan_document(scan: Scan, rows: list[LengthRow]) -> dict[str, Any]:
    return {
        "samples": scan.samples,
        "read": scan.read,
        "lengths": [{"length": length, "samples": many} for length, many in scan.lengths],
        "at_length": [
            {"sequence_length": row.length, "cut_share": row.share_cut, "padding_share": row.share_padding}
            for row in rows
        ],
    }


def _where(error: OomtuneError) -> str:
    return error.problems[0].where if isinstance(error, SpecProblem) else error.where


def _frontier_document(point: FrontierPoint) -> dict[str, Any]:
    lane = point.lane
    return {
        "precision": lane.precision,
        "sequence_length": lane.sequence_length,
        "remat": str(lane.remat),
        **({"optimizer": lane.optimizer} if lane.optimizer else {}),
        "batch_size": point.batch_size,
        "certainty": "run",
        "edge_known": point.edge_known,
    }


def device_document(device: Device) -> dict[str, Any]:
    return {"kind": device.kind, "name": device.name, "stands_in_for": device.stands_in_for}


def candidate_document(candidate: Candidate) -> dict[str, Any]:
    return {
        "batch_size": candidate.batch_size,
        "sequence_length": candidate.sequence_length,
        "precision": candidate.precision,
        "remat": str(candidate.remat),
        **({"optimizer": candidate.optimizer} if candidate.optimizer else {}),
    }


def trial_document(record: TrialRecord, entry: TrialEntry) -> dict[str, Any]:
    """A trial with the peak and the step of the run that its row shows, as in every other form: a climb's are those of
    its largest size that fitted."""
    outcome, run = record.outcome, entry.run
    return {
        "number": record.number,
        "purpose": record.trial.purpose.value,
        "candidate": candidate_document(record.trial.candidate),
        **({"buckets": [list(pair) for pair in run.buckets]} if run.buckets else {}),
        "outcome": outcome.kind.value,
        "stage": outcome.stage.value,
        "peak_bytes": run.peak_bytes,
        "step_ms": run.step_ms,
        "duration_s": outcome.duration_s,
        "points": [_point_document(point) for point in outcome.points],
        **_further_document(outcome),
        **({"findings": [dataclasses.asdict(found) for found in outcome.findings]} if outcome.findings else {}),
        "error": None if outcome.error is None else problem_document(outcome.error) | _allocator_document(outcome),
    }


def _further_document(outcome: Outcome) -> dict[str, Any]:
    """The larger sizes that it went on to in the same process, if there were any."""
    failed = outcome.further_failed
    fitted = [_point_document(point) for point in outcome.further]
    ended = None if failed is None else {**dataclasses.asdict(failed), "kind": failed.kind.value}
    return {"further": fitted, "further_failed": ended} if fitted or ended else {}


def _allocator_document(outcome: Outcome) -> dict[str, Any]:
    return {} if outcome.allocator is None else {"allocator": dataclasses.asdict(outcome.allocator)}


def _point_document(point: Point) -> dict[str, Any]:
    return {"batch_size": point.batch_size, "peak_bytes": point.peak_bytes, "step_ms": point.step_ms}


def problem_document(problem: TrialError) -> dict[str, Any]:
    return {
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
        "where": problem.where,
        **({"traceback": problem.traceback} if problem.traceback else {}),
    }
