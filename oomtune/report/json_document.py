"""The JSON document that every command prints with `--json`, even if it fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from oomtune import __version__
from oomtune.diagnosis import Diagnosis
from oomtune.diagnosis.names import size_of
from oomtune.diagnosis.remedy import Remedy
from oomtune.domain import (
    Anatomy,
    Buckets,
    Candidate,
    CheckResult,
    Cost,
    Device,
    Explanation,
    Failed,
    FrontierPoint,
    Growth,
    Lane,
    Outcome,
    ProbeResult,
    Scan,
    TrialError,
    TrialRecord,
    TriedRemedy,
)
from oomtune.errors import INTERRUPTED, OomtuneError, SpecProblem
from oomtune.report.answer import LengthRow, findings, length_rows
from oomtune.report.check import certainty, check_message
from oomtune.report.explanation import growth_sentences, spec_lines
from oomtune.report.trial_rows import TrialRow, trial_rows

_FORMAT = 1


def json_document(
    command: str, exit_code: int, verdict: str, entries: Mapping[str, Any], error: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a command's entries together with the keys that every document has."""
    head = {
        "format": _FORMAT,
        "oomtune": __version__,
        "command": command,
        "exit_code": exit_code,
        "verdict": verdict,
    }
    return {**head, **entries, "error": error}


def probe_document(result: ProbeResult) -> dict[str, Any]:
    entries = {**_answer(result), **_evidence(result), **_circumstances(result)}
    problem = None if result.problem is None else _error(result.problem)
    return json_document("probe", result.verdict.exit_code, result.verdict.value, entries, problem)


def report_document(result: ProbeResult) -> dict[str, Any]:
    """Return the document of an earlier probe. `report` itself succeeds however the probe ended."""
    changes = {"command": "report", "exit_code": 0, "probe_exit_code": result.verdict.exit_code}
    return {**probe_document(result), **changes}


def _answer(result: ProbeResult) -> dict[str, Any]:
    best = result.best
    confirm = best.confirmed_by.outcome if best and best.confirmed_by else None
    return {
        "best": _candidate(best.candidate) if best else None,
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
    """Return the accumulation entries under the keys of the tuned config."""
    steps = result.spec.training.accumulation_steps(candidate.batch_size)
    return {"gradient_accumulation_steps": steps, "effective_batch_size": steps * candidate.batch_size}


def _evidence(result: ProbeResult) -> dict[str, Any]:
    """Return the trials and the results drawn from them."""
    return {
        "trials": [_trial(record, row) for record, row in zip(result.records, trial_rows(result), strict=True)],
        "new_trials": result.new_trials,
        "frontier": [_frontier_point(point) for point in result.frontier],
        "buckets": None if result.buckets is None else _buckets(result.buckets),
        "dataset": None if result.spec.scan is None else _scan(result.spec.scan, length_rows(result)),
    }


def _circumstances(result: ProbeResult) -> dict[str, Any]:
    """Return the probe's environment and files."""
    return {
        "tuned_path": result.tuned_path,
        "ledger_path": result.ledger_path,
        "environment": {**result.environment, "device": _device(result.device)},
        "notices": list(result.notices),
    }


def _buckets(buckets: Buckets) -> dict[str, Any]:
    return {
        "boundaries": list(buckets.boundaries),
        "batch_sizes": list(buckets.batch_sizes),
        "padding_share": buckets.share_padding,
        "peak_bytes": buckets.confirmed_by.outcome.peak_bytes,
    }


def _scan(scan: Scan, rows: list[LengthRow]) -> dict[str, Any]:
    return {
        "samples": scan.samples,
        "read": scan.read,
        "lengths": [{"length": length, "samples": samples} for length, samples in scan.lengths],
        "at_length": [
            {"sequence_length": row.length, "cut_share": row.share_cut, "padding_share": row.share_padding}
            for row in rows
        ],
    }


def _frontier_point(point: FrontierPoint) -> dict[str, Any]:
    return {
        "precision": point.lane.precision,
        "sequence_length": point.lane.sequence_length,
        **_remat_and_optimizer(point.lane),
        "batch_size": point.batch_size,
        "certainty": "run",
        "edge_known": point.edge_known,
    }


def _device(device: Device) -> dict[str, Any]:
    return {"kind": device.kind, "name": device.name, "stands_in_for": device.stands_in_for}


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "batch_size": candidate.batch_size,
        "sequence_length": candidate.sequence_length,
        "precision": candidate.precision,
        **_remat_and_optimizer(candidate),
    }


def _remat_and_optimizer(choice: Candidate | Lane) -> dict[str, Any]:
    return {"remat": str(choice.remat), **({"optimizer": choice.optimizer} if choice.optimizer else {})}


def _trial(record: TrialRecord, row: TrialRow) -> dict[str, Any]:
    """Return a trial. Its peak and step time are those of the run that every other format shows."""
    outcome = record.outcome
    return {
        "number": record.number,
        "purpose": record.trial.purpose.value,
        "candidate": _candidate(record.trial.candidate),
        **({"buckets": [list(pair) for pair in record.buckets]} if record.buckets else {}),
        "outcome": outcome.kind.value,
        "stage": outcome.stage.value,
        "peak_bytes": row.run.peak_bytes,
        "step_ms": row.run.step_ms,
        "duration_s": outcome.duration_s,
        "points": [dataclasses.asdict(point) for point in outcome.points],
        **_further(outcome),
        **({"findings": [dataclasses.asdict(finding) for finding in outcome.findings]} if outcome.findings else {}),
        "error": None if outcome.error is None else {**_error(outcome.error), **_allocator(outcome)},
    }


def _further(outcome: Outcome) -> dict[str, Any]:
    """Return the larger sizes that ran next in the same process, if any."""
    failed = outcome.further_failed
    points = [dataclasses.asdict(point) for point in outcome.further]
    failure = None if failed is None else {**dataclasses.asdict(failed), "kind": failed.kind.value}
    return {"further": points, "further_failed": failure} if points or failure else {}


def _allocator(outcome: Outcome) -> dict[str, Any]:
    allocator = outcome.allocator if isinstance(outcome, Failed) else None
    return {} if allocator is None else {"allocator": dataclasses.asdict(allocator)}


def _error(problem: TrialError) -> dict[str, Any]:
    return {key: value for key, value in dataclasses.asdict(problem).items() if value or key != "traceback"}


def check_document(result: CheckResult) -> dict[str, Any]:
    outcome, deciding, message, updated = result.outcome, result.deciding, check_message(result), result.updated
    entries = {
        "best": _candidate(result.candidate),
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
        "changes": [dataclasses.asdict(change) for change in result.changes],
        "spec_diff": list(result.spec_diff),
        "updated": None
        if updated is None
        else {
            "best": _candidate(updated.best.candidate) if updated.best else None,
            "tuned_path": updated.tuned_path,
            "before": _candidate(result.candidate_before) if result.candidate_before else None,
            "trials": updated.new_trials,
        },
        "device": _device(result.device),
        "notices": list(result.notices),
        "message": message.sentence,
        "hint": message.hint,
    }
    problem = None if result.problem is None else _error(result.problem)
    return json_document("check", result.exit_code, result.verdict.value, entries, problem)


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    entries = {
        "candidate": _candidate(explanation.candidate),
        "chosen": explanation.chosen,
        "memory": {
            "limit_bytes": explanation.budget.limit_bytes,
            "budget_bytes": explanation.budget.budget_bytes,
            "peak_bytes": explanation.before.peak_bytes,
            "noise_bytes": explanation.noise_bytes,
        },
        "anatomy": None if explanation.anatomy is None else _anatomy(explanation.anatomy),
        "growth": {**_growth(explanation.growth), "words": growth_sentences(explanation)},
        "before": _cost(explanation.before),
        "remedies": [_remedy(remedy, explanation) for remedy in explanation.remedies],
        "trials": explanation.trials,
        "environment": {**explanation.environment, "device": _device(explanation.device)},
        "notices": list(explanation.notices),
    }
    return json_document("explain", 0, "explained", entries)


def _anatomy(anatomy: Anatomy) -> dict[str, Any]:
    return {
        "peak_bytes": anatomy.peak_bytes,
        "phase": anatomy.phase.value if anatomy.phase else None,
        "parts": [
            {"held": part.held.value, "bytes": part.size_bytes, "how": "measured" if part.measured else "computed"}
            for part in anatomy.parts
        ],
        "rest": {"backward_bytes": anatomy.backward_bytes, "update_bytes": anatomy.update_bytes},
        "largest_op": {"name": anatomy.largest_op, "bytes": anatomy.largest_bytes} if anatomy.largest_op else None,
        "layers": [
            {
                "name": layer.name,
                "class": layer.class_name or None,
                "weights_bytes": layer.weights_bytes,
                "activations_bytes": layer.activations_bytes,
            }
            for layer in anatomy.layers
        ],
        "layers_how": "measured" if anatomy.layers_measured else "computed",
        "why_computed": anatomy.why_computed or None,
    }


def _growth(growth: Growth) -> dict[str, Any]:
    return {
        "fixed_bytes": growth.fixed_bytes,
        "bytes_per_sample": growth.bytes_per_sample,
        "sequence_length": growth.sequence_length,
        "shorter_length": growth.shorter_length,
        "bytes_per_token": growth.bytes_per_token,
        "bytes_per_pair_of_tokens": growth.bytes_per_pair,
        "doubling_the_sequence": growth.doubling,
        "points": [{"batch_size": point.batch_size, "peak_bytes": point.peak_bytes} for point in growth.points],
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "peak_bytes": cost.peak_bytes,
        "step_ms": cost.step_ms,
        "largest_batch_size": {"value": cost.largest_batch_size, "certainty": cost.certainty.value},
    }


def _remedy(remedy: TriedRemedy, explanation: Explanation) -> dict[str, Any]:
    return {
        "name": remedy.name,
        "entries": remedy.entries,
        "lines": list(spec_lines(remedy)),
        "before": _cost(explanation.before),
        "after": None if remedy.cost is None else _cost(remedy.cost),
        "saved_bytes": explanation.saved_bytes(remedy) if remedy.cost else None,
        "problem": remedy.problem or None,
    }


def diagnosis_document(diagnosis: Diagnosis, advice: Sequence[Remedy], exit_code: int) -> dict[str, Any]:
    shape = diagnosis.tensor_shape
    entries = {
        "kind": diagnosis.kind,
        "failed": diagnosis.failed,
        "cause": None if diagnosis.cause is None else diagnosis.cause.name.lower(),
        "survived": diagnosis.survived,
        "line": diagnosis.line,
        "line_number": diagnosis.line_number,
        "tensor": None
        if shape is None
        else {"shape": list(shape), "dtype": diagnosis.dtype, "bytes": size_of(shape, diagnosis.dtype)},
        "op": diagnosis.op,
        "layer": diagnosis.layer,
        "allocator": diagnosis.allocator,
        "device": diagnosis.device,
        "memory": {
            "requested_bytes": diagnosis.bytes_requested,
            "in_use_bytes": diagnosis.in_use_bytes,
            "limit_bytes": diagnosis.limit_bytes,
        },
        "advice": [
            {
                "what": remedy.what,
                "spec": remedy.spec_line or None,
                "set": remedy.set_flag or None,
                "code": remedy.code or None,
            }
            for remedy in advice
        ],
    }
    no_memory = "not_oom" if diagnosis.failed else "no_failure"
    return json_document("diagnose", exit_code, diagnosis.kind if diagnosis.is_memory else no_memory, entries)


# A command that fails before it has a result still prints all of its keys.
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
    where = error.problems[0].where if isinstance(error, SpecProblem) else error.where
    problem = {"code": error.code, "message": error.message, "hint": error.hint, "where": where}
    return json_document(command, exit_code, verdict, _NO_RESULT.get(command, {}), problem)
