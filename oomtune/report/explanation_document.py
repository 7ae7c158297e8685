"""An explanation as the JSON document that `explain --json` prints."""

from __future__ import annotations

from typing import Any

from oomtune.domain import Anatomy, Cost, Explanation, Growth, TriedRemedy
from oomtune.report.document import candidate_document, device_document, json_document
from oomtune.report.explanation import growth_sentences, lines_of


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    entries = {
        "candidate": candidate_document(explanation.candidate),
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
        "environment": {**explanation.environment, "device": device_document(explanation.device)},
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
        "lines": list(lines_of(remedy)),
        "before": _cost(explanation.before),
        "after": None if remedy.cost is None else _cost(remedy.cost),
        "saved_bytes": explanation.saved_bytes(remedy) if remedy.cost else None,
        "problem": remedy.problem or None,
    }
