"""The JSON document that a command prints with `--json`, whatever happens."""

from __future__ import annotations

from typing import Any

from oomtune import __version__
from oomtune.domain import Buckets, Candidate, Point, ProbeResult, Scan, TrialError, TrialRecord
from oomtune.errors import OomtuneError, SpecProblem
from oomtune.report.model import LengthRow, length_rows

FORMAT = 1


def probe_document(result: ProbeResult, exit_code: int) -> dict[str, Any]:
    best = result.best
    confirm = best.confirmed_by.outcome if best and best.confirmed_by else None
    return {
        "format": FORMAT,
        "oomtune": __version__,
        "command": "probe",
        "exit_code": exit_code,
        "verdict": result.verdict.value,
        "best": candidate_document(best.candidate) if best else None,
        "confirmed": confirm is not None,
        "memory": {
            "limit_bytes": result.budget.limit_bytes,
            "budget_bytes": result.budget.budget_bytes,
            "peak_bytes": best.peak_bytes if best else None,
        },
        "throughput": {
            "step_ms": best.confirmed_step_ms if best else None,
            "samples_per_second": best.samples_per_second if best else None,
        },
        "leak_bytes_per_step": confirm.leak_bytes_per_step if confirm else 0,
        "trials": [trial_document(record) for record in result.records],
        "new_trials": result.new_trials,
        "frontier": [
            {
                "precision": point.lane.precision,
                "sequence_length": point.lane.sequence_length,
                "remat": point.lane.remat,
                "batch_size": point.batch_size,
                "certainty": "run",
                "edge_known": point.edge_known,
            }
            for point in result.frontier
        ],
        "buckets": None if result.buckets is None else _buckets_document(result.buckets),
        "dataset": None if result.spec.scan is None else _scan_document(result.spec.scan, length_rows(result)),
        "tuned_path": result.tuned_path,
        "ledger_path": result.ledger_path,
        "environment": {
            **result.environment,
            "device": {
                "kind": result.device.kind,
                "name": result.device.name,
                "stands_in_for": result.device.stands_in_for,
            },
        },
        "notices": list(result.notices),
        "error": None if result.problem is None else _problem_document(result.problem),
    }


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


def error_document(command: str, exit_code: int, error: OomtuneError) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "oomtune": __version__,
        "command": command,
        "exit_code": exit_code,
        "verdict": "failed" if exit_code != 130 else "interrupted",
        "best": None,
        "memory": None,
        "throughput": None,
        "trials": [],
        "frontier": [],
        "buckets": None,
        "dataset": None,
        "tuned_path": None,
        "ledger_path": None,
        "environment": {},
        "error": {"code": error.code, "message": error.message, "hint": error.hint, "where": _where(error)},
    }


def _where(error: OomtuneError) -> str:
    return error.problems[0].where if isinstance(error, SpecProblem) else error.where


def candidate_document(candidate: Candidate) -> dict[str, Any]:
    return {
        "batch_size": candidate.batch_size,
        "sequence_length": candidate.sequence_length,
        "precision": candidate.precision,
        "remat": candidate.remat,
    }


def trial_document(record: TrialRecord) -> dict[str, Any]:
    outcome = record.outcome
    return {
        "number": record.number,
        "purpose": record.trial.purpose.value,
        "candidate": candidate_document(record.trial.candidate),
        **({"buckets": [list(pair) for pair in record.trial.buckets]} if record.trial.buckets else {}),
        "outcome": outcome.kind.value,
        "stage": outcome.stage.value,
        "peak_bytes": outcome.peak_bytes,
        "step_ms": outcome.step_ms,
        "duration_s": round(outcome.duration_s, 3),
        "points": [_point_document(point) for point in outcome.points],
        "error": None if outcome.error is None else _problem_document(outcome.error),
    }


def _point_document(point: Point) -> dict[str, Any]:
    return {"batch_size": point.batch_size, "peak_bytes": point.peak_bytes, "step_ms": point.step_ms}


def _problem_document(problem: TrialError) -> dict[str, Any]:
    return {
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
        "where": problem.where,
        **({"traceback": problem.traceback} if problem.traceback else {}),
    }
