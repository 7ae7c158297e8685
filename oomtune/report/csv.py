"""A probe as CSV, one line for each size that ran. The sizes of one trial share its number."""

from __future__ import annotations

import csv
import io

from oomtune.domain import ProbeResult, Run, runs_of
from oomtune.report.trial_rows import ending_of

COLUMNS = (
    "trial", "purpose", "batch_size", "sequence_length", "precision", "remat", "optimizer", "buckets", "outcome",
    "ended", "stage", "peak_bytes", "budget_bytes", "limit_bytes", "step_ms", "samples_per_second", "duration_s",
    "error",
)  # fmt: skip
HEADER_MARK = ",".join(COLUMNS[:5])
"""Marks a CSV file as written by oomtune, so that the next run may overwrite it."""


def probe_csv(result: ProbeResult) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_cells(run, result) for run in runs_of(result.records))
    return text.getvalue()


def _cells(run: Run, result: ProbeResult) -> list[object]:
    candidate = run.candidate
    return [
        run.trial_number,
        run.purpose,
        candidate.batch_size,
        candidate.sequence_length,
        candidate.precision,
        _without_formula(str(candidate.remat)),
        _without_formula(candidate.optimizer or ""),
        " ".join(f"{length}:{size}" for length, size in run.buckets),
        run.kind,
        ending_of(run).words,
        run.stage,
        run.peak_bytes,
        result.budget.budget_bytes,
        result.budget.limit_bytes,
        run.step_ms,
        run.samples_per_second,
        run.duration_s,
        _without_formula(run.error.message if run.error else ""),
    ]


def _without_formula(text: str) -> str:
    """Quote text that a spreadsheet would run as a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
