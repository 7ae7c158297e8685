"""A finished probe as plain rows of words: what every way of showing it agrees on."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from oomtune.domain import (
    Aim,
    Buckets,
    BucketTurns,
    Budget,
    Candidate,
    Kind,
    ProbeResult,
    Purpose,
    RematMode,
    Script,
    TrainingSpec,
    TrainStep,
    TrialRecord,
)
from oomtune.report.endings import Ending, outcome_words
from oomtune.report.findings import fragmentation
from oomtune.units import format_bytes, format_ms

_MOST_LENGTHS = 12
_MOST_BARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    number: int
    purpose: str
    candidate: str
    outcome: str
    fits: bool
    """Did what the row shows fit? A climb's row shows the sizes that did."""
    share: float | None
    """Peak memory as a share of the limit."""
    memory: str
    duration_s: float


def trial_row(record: TrialRecord, budget: Budget) -> TrialRow:
    outcome, trial = record.outcome, record.trial
    candidate = f"{trial.candidate}{', for its time' if trial.aim is Aim.TIMING else ''}"
    peak = outcome.peak_bytes
    if isinstance(trial, BucketTurns):
        candidate = f"buckets by turns, {', '.join(f'{size} of {length}' for length, size in trial.buckets)}"
    climbed = trial.purpose is Purpose.CALIBRATE and bool(outcome.points)
    if climbed:
        first, last = outcome.points[0], outcome.points[-1]
        sizes = f"{first.batch_size} to {last.batch_size}" if first != last else str(first.batch_size)
        candidate = f"batch {sizes}, {trial.candidate.lane}"
        peak = last.peak_bytes
    return TrialRow(
        number=record.number,
        purpose=trial.purpose.value,
        candidate=candidate,
        outcome=outcome_words(record),
        fits=outcome.kind is Kind.FITS or climbed,
        share=None if peak is None else peak / budget.limit_bytes,
        memory="" if peak is None else format_bytes(peak),
        duration_s=outcome.duration_s,
    )


def answer_rows(result: ProbeResult) -> list[tuple[str, str]]:
    """The answer and what it stands on, as pairs of a name and a value."""
    best = result.best
    if best is None:
        return []
    confirm = best.confirmed_by.outcome if best.confirmed_by else None
    peak, step_ms = best.peak_bytes, best.confirmed_step_ms
    rows = _settings(result, best.candidate)
    limit = result.budget.limit_bytes
    rows.append(("peak memory", f"{format_bytes(peak)} of {format_bytes(limit)} ({peak / limit:.0%})"))
    if step_ms:
        rows.append(("step", f"{format_ms(step_ms)}, {best.samples_per_second:,.0f} samples a second"))
    if confirm:
        validated = ", with validation" if confirm.validated else ""
        rows.append(("confirmed", f"{confirm.steps_run} steps in a fresh process{validated}"))
    else:
        rows.append(("confirmed", "no: the search was stopped first"))
    rows.append(("next larger", _next_larger_words(result)))
    rows.append(("trials", f"{len(result.records)}, {result.new_trials} of them now"))
    return rows


def _settings(result: ProbeResult, candidate: Candidate) -> list[tuple[str, str]]:
    """What to train with."""
    rows = [("batch size", str(candidate.batch_size))]
    if candidate.sequence_length is not None:
        rows.append(("sequence length", str(candidate.sequence_length)))
    refused = "".join(f"; {name} refused: {said}" for name, said in result.refused_precisions.items())
    rows.append(("precision", f"{candidate.precision}{refused}"))
    if candidate.remat is not RematMode.NONE:
        rows.append(("rematerialisation", f"{candidate.remat}{_time_for_remat(result)}"))
    if candidate.optimizer is not None:
        skipped = result.spec.space.optimizers.index(candidate.optimizer)
        listed = ", ".join(str(name) for name in result.spec.space.optimizers[:skipped])
        # Of smaller batches nothing is known: none below the floor was tried.
        floor = result.spec.min_batch_size
        least = f" of at least {floor} samples" if floor > 1 else ""
        rows.append(("optimizer", candidate.optimizer + (f"; nothing{least} fits with {listed}" if listed else "")))
    if result.buckets is not None:
        rows.append(("buckets", _bucket_words(result, result.buckets)))
    accumulation = _accumulation_words(result.spec.training, candidate.batch_size, result.buckets)
    return rows + ([("gradient accumulation", accumulation)] if accumulation else [])


def _time_for_remat(result: ProbeResult) -> str:
    """What it costs in time, where that was seen."""
    slowdown = result.remat_slowdown
    if slowdown is None:
        return ", at a cost in time that was not measured"
    return f", {slowdown:.2f} times the time for a sample"


def _accumulation_words(training: TrainingSpec, batch_size: int, buckets: Buckets | None) -> str:
    """How micro-batches add up, and whether they do so exactly; empty when one is enough."""
    asked, steps = training.effective_batch_size, training.accumulation_steps(batch_size)
    reached = steps * batch_size
    if asked is None or reached == batch_size == asked:
        return ""
    missed = "" if reached == asked else f", the nearest to {asked}: no near micro-batch that fits divides it"
    sizes = buckets.batch_sizes if buckets else ()
    varied = f"; in buckets from {steps * min(sizes)} to {steps * max(sizes)}" if sizes else ""
    return f"{'no' if steps == 1 else f'{steps} steps'}, effective batch {reached}{missed}{varied}"


def _bucket_words(result: ProbeResult, buckets: Buckets) -> str:
    pairs = zip(buckets.batch_sizes, buckets.boundaries, strict=True)
    before = [f" instead of {row.share_padding:.0%}" for row in length_rows(result) if row.chosen]
    sizes = ", ".join(f"{size} up to {length}" for size, length in pairs)
    return f"{sizes}; {buckets.share_padding:.0%} padding{''.join(before)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRow:
    """What cutting and padding every sample to a length does to the data."""

    length: int
    share_cut: float
    share_padding: float
    chosen: bool


def length_rows(result: ProbeResult) -> list[LengthRow]:
    """One row for each length searched; none when the data has no lengths."""
    scan, lengths = result.spec.scan, result.spec.space.sequence_lengths
    if scan is None or not scan.lengths or lengths is None:
        return []
    chosen = result.best.candidate.sequence_length if result.best else None
    shown = lengths if len(lengths) <= _MOST_LENGTHS else lengths[:: -(-len(lengths) // _MOST_LENGTHS)]
    return [
        LengthRow(
            length=length,
            share_cut=scan.share_cut(length),
            share_padding=scan.share_padding(length),
            chosen=length == chosen,
        )
        for length in sorted({*shown, chosen or shown[-1]})
    ]


def length_histogram(lengths: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """The samples in up to twelve ranges of lengths of equal width: from, to and how many."""
    longest = lengths[-1][0]
    width = max(1, math.ceil(longest / _MOST_BARS))
    counts = [0] * math.ceil(longest / width)
    for length, many in lengths:
        counts[(length - 1) // width] += many
    return [(index * width + 1, (index + 1) * width, many) for index, many in enumerate(counts)]


def _next_larger_words(result: ProbeResult) -> str:
    assert result.best is not None, "asked only when there is a best"
    if result.next_larger is not None:
        larger, kind = result.next_larger
        words = "does not fit" if kind is Kind.DEVICE_OOM else Ending[kind.name].words
        return f"batch {larger.batch_size}: {words}{' (fragmentation)' if fragmentation(result) else ''}"
    scan = result.spec.scan
    if scan is not None and result.best.candidate.batch_size == scan.samples:
        return "not searched: the data has no more samples"
    if result.best.candidate.batch_size == result.spec.space.batch_sizes[-1]:
        return "not searched: this is the largest batch that search.batch_size allows"
    return "not tried"


def paste_lines(result: ProbeResult) -> list[str]:
    """What to put into a training script; for one that was probed itself, how to run it."""
    if result.tuned_path is None or result.best is None:
        return []
    model = result.spec.model
    if isinstance(model, Script):
        return [shlex.join(["python", model.path, *model.filled(result.best.candidate)])]
    lines = [
        "import oomtune, oomtune.keras",
        f"tuned = oomtune.load_tuned({result.tuned_path!r})",
        "oomtune.keras.setup(tuned)                       # before any TensorFlow op",
    ]
    batched = "batch" if result.buckets is None else "bucketed"
    if isinstance(model, TrainStep):
        return [*lines, "dataset = oomtune.keras.batch(train, tuned)      # then your own loop"]
    if result.best.candidate.remat is not RematMode.NONE:
        lines.append("oomtune.keras.rematerialise(model, tuned)        # your model, once it is made")
    if result.spec.training.loss is None:
        lines.append("# your model comes compiled: it keeps its own optimizer and loss, as in the trials")
    else:
        lines.append("model.compile(**oomtune.keras.compile_args(tuned))")
    return [
        *lines,
        f"model.fit(oomtune.keras.{batched}(train, tuned), validation_data=oomtune.keras.{batched}(valid, tuned))",
    ]
