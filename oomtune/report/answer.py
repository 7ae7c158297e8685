"""The answer of a probe as words and rows for every format: verdict, settings, findings, lanes and lengths."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from oomtune.domain import (
    Buckets,
    Candidate,
    Finding,
    Kind,
    Lane,
    ProbeResult,
    Purpose,
    RematMode,
    Script,
    TrainStep,
    TrialError,
    TrialRecord,
    Verdict,
)
from oomtune.report.trial_rows import peak_of_limit
from oomtune.search.curves import Line
from oomtune.search.lanes import lane_lines, lane_views
from oomtune.units import format_ms

_MOST_LENGTHS = 12
_MOST_BARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictWords:
    sign: str
    word: str
    sentence: str
    is_good: bool
    """Whether there is an answer to train with."""


def verdict_words(result: ProbeResult) -> VerdictWords:
    best = result.best
    problem = result.problem.message if result.problem else ""
    so_far = f"; the best so far is {best.candidate}" if best else "; nothing has fitted so far"
    match result.verdict:
        case Verdict.TUNED:
            steps = best.confirmed_by.outcome.steps_run if best and best.confirmed_by else 0
            proof = f", confirmed with {steps} steps in a fresh process" if steps else ", not confirmed"
            sentence = f"{capitalized(str(best.candidate if best else ''))} trains{proof}."
            return VerdictWords(sign="●", word="fits", sentence=sentence, is_good=True)
        case Verdict.STOPPED:
            sentence = f"{capitalized(problem)}{so_far}."
            return VerdictWords(sign="◐", word="stopped", sentence=sentence, is_good=best is not None)
        case Verdict.NOTHING_FITS:
            sentence = capitalized(problem) or "Not even the smallest configuration fits"
            return VerdictWords(sign="✕", word="nothing fits", sentence=f"{sentence}.", is_good=False)
        case Verdict.FAILED:
            sentence = f"A trial failed for a reason other than memory: {problem or 'see the trials'}"
            return VerdictWords(sign="■", word="failed", sentence=f"{sentence.rstrip('.')}.", is_good=False)
        case Verdict.INTERRUPTED:
            sentence = capitalized(problem) or "Interrupted"
            return VerdictWords(sign="◐", word="interrupted", sentence=f"{sentence}{so_far}.", is_good=False)


def capitalized(text: str) -> str:
    """Return the text with an upper-case first letter and the rest unchanged."""
    return text[:1].upper() + text[1:]


def answer_rows(result: ProbeResult) -> list[tuple[str, str]]:
    """Return the answer and its evidence as pairs of a name and a value; empty when nothing fitted."""
    best = result.best
    if best is None:
        return []
    rows = _setting_rows(result, best.candidate)
    rows.append(("peak memory", peak_of_limit(best.peak_bytes, result.budget)))
    step_ms = best.confirmed_step_ms
    if step_ms:
        rows.append(("step", f"{format_ms(step_ms)}, {best.samples_per_second:,.0f} samples a second"))
    if best.confirmed_by:
        confirm = best.confirmed_by.outcome
        validated = ", with validation" if confirm.validated else ""
        rows.append(("confirmed", f"{confirm.steps_run} steps in a fresh process{validated}"))
    else:
        rows.append(("confirmed", "no: the search was stopped first"))
    rows.append(("next larger", _next_larger(result, best.candidate)))
    rows.append(("trials", f"{len(result.records)}, {result.new_trials} of them new"))
    return rows


def chosen_settings(candidate: Candidate) -> list[tuple[str, str]]:
    """Return the settings that the candidate has, as pairs of a name and a value."""
    settings = {
        "batch size": candidate.batch_size,
        "sequence length": candidate.sequence_length,
        "precision": candidate.precision,
        "rematerialisation": None if candidate.remat is RematMode.NONE else candidate.remat,
        "optimizer": candidate.optimizer,
    }
    return [(name, str(value)) for name, value in settings.items() if value is not None]


def _setting_rows(result: ProbeResult, candidate: Candidate) -> list[tuple[str, str]]:
    """Return the settings to train with."""
    slowdown = result.remat_slowdown
    remarks = {
        "precision": "".join(f"; {name} refused: {reason}" for name, reason in result.refused_precisions.items()),
        "rematerialisation": ", its time cost was not measured"
        if slowdown is None
        else f", a sample takes {slowdown:.2f} times as long",
        "optimizer": _optimizer_remark(result, candidate),
    }
    rows = [(name, f"{value}{remarks.get(name, '')}") for name, value in chosen_settings(candidate)]
    if result.buckets is not None:
        rows.append(("buckets", _bucket_words(result, result.buckets)))
    accumulation = _accumulation_words(result, candidate.batch_size)
    return rows + ([("gradient accumulation", accumulation)] if accumulation else [])


def _optimizer_remark(result: ProbeResult, candidate: Candidate) -> str:
    """Return a remark that nothing fits with the preferred optimizers; empty if this optimizer is the first choice."""
    optimizers = result.spec.space.optimizers
    preferred = ", ".join(str(name) for name in optimizers[: optimizers.index(candidate.optimizer)])
    # The search tries no batch below the floor.
    floor = result.spec.min_batch_size
    least = f"no batch of at least {floor} samples" if floor > 1 else "nothing"
    return f"; {least} fits with {preferred}" if preferred else ""


def _accumulation_words(result: ProbeResult, batch_size: int) -> str:
    """Return the accumulation steps and the effective batch size; empty when one micro-batch is enough."""
    training, sizes = result.spec.training, result.buckets.batch_sizes if result.buckets else ()
    target, steps = training.effective_batch_size, training.accumulation_steps(batch_size)
    effective = steps * batch_size
    if target is None or effective == batch_size == target:
        return ""
    remark = "" if effective == target else f", the nearest to {target}: no micro-batch near this size divides it"
    in_buckets = f"; from {steps * min(sizes)} to {steps * max(sizes)} in buckets" if sizes else ""
    return f"{'no' if steps == 1 else f'{steps} steps'}, effective batch {effective}{remark}{in_buckets}"


def _bucket_words(result: ProbeResult, buckets: Buckets) -> str:
    pairs = zip(buckets.batch_sizes, buckets.boundaries, strict=True)
    before = [f" instead of {row.share_padding:.0%}" for row in length_rows(result) if row.is_chosen]
    sizes = ", ".join(f"{size} up to {length}" for size, length in pairs)
    return f"{sizes}; {buckets.share_padding:.0%} padding{''.join(before)}"


def _next_larger(result: ProbeResult, candidate: Candidate) -> str:
    if result.next_larger is not None:
        larger, kind = result.next_larger
        words = "does not fit" if kind is Kind.DEVICE_OOM else kind.words
        return f"batch {larger.batch_size}: {words}{' (fragmentation)' if _fragmentation(result) else ''}"
    scan = result.spec.scan
    if scan is not None and candidate.batch_size == scan.samples:
        return "not searched: the data has no more samples"
    if candidate.batch_size == result.spec.space.batch_sizes[-1]:
        return "not searched: this is the largest batch that search.batch_size allows"
    return "not tried"


def paste_lines(result: ProbeResult) -> list[str]:
    """Return the lines to paste into a training script, or the command that runs the probed script."""
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
        return [*lines, "dataset = oomtune.keras.batch(train, tuned)      # then run your own loop"]
    if result.best.candidate.remat is not RematMode.NONE:
        lines.append("oomtune.keras.rematerialise(model, tuned)        # after building your model")
    if result.spec.training.loss is None:
        lines.append("# your model is compiled already: it keeps its own optimizer and loss, as in the trials")
    else:
        lines.append("model.compile(**oomtune.keras.compile_args(tuned))")
    return [
        *lines,
        f"model.fit(oomtune.keras.{batched}(train, tuned), validation_data=oomtune.keras.{batched}(valid, tuned))",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    message: str
    where: str
    hint: str


def findings(result: ProbeResult) -> tuple[Finding, ...]:
    """Return the findings of the run that confirmed the answer, or of the last confirm run when none did."""
    if result.best is not None and result.best.confirmed_by is not None:
        return result.best.confirmed_by.outcome.findings
    confirms = [record for record in result.records if record.trial.purpose is Purpose.CONFIRM]
    return confirms[-1].outcome.findings if confirms else ()


def finding_rows(result: ProbeResult) -> list[FindingRow]:
    """Return what matters in longer training, including fragmentation that keeps the next larger batch from fitting.

    The message of a finding that makes memory grow also tells how many steps the remaining memory lasts.
    """
    peak_bytes = result.best.peak_bytes if result.best else result.budget.limit_bytes
    left_bytes = result.budget.limit_bytes - peak_bytes
    rows = []
    for finding in findings(result):
        growth = finding.bytes_per_step
        lasts = f"; the rest of the limit lasts {left_bytes // growth:,} steps" if growth and left_bytes > 0 else ""
        rows.append(FindingRow(message=f"{finding.message}{lasts}", where=finding.where, hint=finding.hint))
    error = _fragmentation(result)
    if error is not None and result.next_larger is not None:
        batch_size = result.next_larger[0].batch_size
        rows.append(FindingRow(message=f"batch {batch_size}: {error.message}", where="", hint=error.hint))
    return rows


def _fragmentation(result: ProbeResult) -> TrialError | None:
    """Return the error of the next larger batch if fragmentation caused it."""
    if result.next_larger is None:
        return None
    larger = result.next_larger[0]
    errors = [_error_at(record, larger) for record in result.records]
    return next((error for error in reversed(errors) if error is not None and error.is_fragmentation), None)


def _error_at(record: TrialRecord, candidate: Candidate) -> TrialError | None:
    return record.outcome.error if record.ended_at == candidate else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """One lane: the largest batch that ran and fitted, and the line through its peaks, if there is one."""

    lane: Lane
    batch_size: int
    edge_known: bool
    line: Line | None
    line_edge: float | None
    """The batch size at which the line meets the budget."""


def lane_rows(result: ProbeResult, lines: Mapping[Lane, Line]) -> list[LaneRow]:
    """Return a row for every lane in which something fitted."""
    rows = []
    for point in result.frontier:
        line = lines.get(point.lane)
        row = LaneRow(
            lane=point.lane,
            batch_size=point.batch_size,
            edge_known=point.edge_known,
            line=line,
            line_edge=None if line is None else line.edge(result.budget.budget_bytes),
        )
        rows.append(row)
    return rows


def fitted_lines(result: ProbeResult) -> dict[Lane, Line]:
    """Return the line through the measured peaks of each lane that has one."""
    return lane_lines(lane_views(result.spec.space, result.records, result.budget))


def without_length(lane: Lane) -> str:
    """Return the name of a lane without its sequence length: one line of the frontier."""
    return str(replace(lane, sequence_length=None))


def edge_text(edge: float) -> str:
    """Format the batch size at which a line meets the budget."""
    return f"{edge:,.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRow:
    """The effect of cutting and padding every sample to one length."""

    length: int
    share_cut: float
    share_padding: float
    is_chosen: bool


def length_rows(result: ProbeResult) -> list[LengthRow]:
    """Return a row for each searched length, up to twelve plus the chosen one; empty if the data has no lengths."""
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
            is_chosen=length == chosen,
        )
        for length in sorted({*shown, chosen or shown[-1]})
    ]


def length_histogram(lengths: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Count samples in up to twelve equally wide ranges of lengths. Return triples of first, last and count."""
    longest = lengths[-1][0]
    width = max(1, math.ceil(longest / _MOST_BARS))
    counts = [0] * math.ceil(longest / width)
    for length, samples in lengths:
        counts[(length - 1) // width] += samples
    return [(index * width + 1, (index + 1) * width, samples) for index, samples in enumerate(counts)]
