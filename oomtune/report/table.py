"""Every size that was run as a line of CSV: a climb has a line for each of its sizes, all under its trial's number."""

from __future__ import annotations

import csv
import io

from oomtune.domain import ProbeResult, Run, runs_of
from oomtune.report.endings import ending_of

COLUMNS = (
    "trial", "purpose", "batch_size", "sequence_length", "precision", "remat", "optimizer", "buckets", "outcome",
    "ended", "stage", "peak_bytes", "budget_bytes", "limit_bytes", "step_ms", "samples_per_second", "duration_s",
    "error",
)  # fmt: skip


def csv_page(result: ProbeResult) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_row(run, result) for run in runs_of(result.records))
    return text.getvalue()


def _row(run: Run, result: ProbeResult) -> list[object]:
    candidate = run.candidate
    return [
        run.trial_number,
        run.purpose,
        candidate.batch_size,
        candidate.sequence_length,
        candidate.precision,
        _harmless(str(candidate.remat)),
        _harmless(candidate.optimizer or ""),
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
        _harmless(run.error.message if run.error else ""),
    ]


def _harmless(text: str) -> str:
    """Spreadsheets take a cell that begins so for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
