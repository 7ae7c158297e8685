"""The trials of a probe as rows for every format, and the words for how a trial ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from oomtune.domain import (
    Aim,
    Budget,
    FailedSize,
    Kind,
    Outcome,
    ProbeResult,
    Provenance,
    Run,
    TrialError,
    TrialRecord,
    runs_of,
)
from oomtune.units import format_bytes


class Ending(Enum):
    """How a run ended: a key, a sign that needs no colour, and words."""

    FITS = (Kind.FITS.value, "●", Kind.FITS.words)
    OVER_HEADROOM = ("over_headroom", "▲", "over the headroom")
    DEVICE_OOM = (Kind.DEVICE_OOM.value, "✕", Kind.DEVICE_OOM.words)
    HOST_OOM = (Kind.HOST_OOM.value, "★", Kind.HOST_OOM.words)
    TIMEOUT = (Kind.TIMEOUT.value, "◆", Kind.TIMEOUT.words)
    CRASH = (Kind.CRASH.value, "■", Kind.CRASH.words)

    def __init__(self, key: str, sign: str, words: str) -> None:
        self.key = key
        self.sign = sign
        self.words = words


def ending_of(ended: Outcome | Run | FailedSize) -> Ending:
    return Ending.OVER_HEADROOM if ended.over_headroom else Ending[ended.kind.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One trial and one of its runs: the last size of a climb that fitted, or else the run of the candidate."""

    number: int
    purpose: str
    run: Run
    configuration: str
    batch: str
    """The batch size; for a climb, the first and the last size that fitted."""
    ending: Ending
    ended: str
    then: str
    """How the larger sizes ended that ran after `run`; empty if there were none."""
    share: float | None
    """The peak of the run as a share of the limit."""
    error: TrialError | None
    duration_s: float

    @property
    def memory(self) -> str:
        return "" if self.run.peak_bytes is None else format_bytes(self.run.peak_bytes)


def trial_rows(result: ProbeResult) -> list[TrialRow]:
    return [trial_row(record, result.budget) for record in result.records]


def trial_row(record: TrialRecord, budget: Budget) -> TrialRow:
    runs = runs_of([record])
    further = [run for run in runs if run.provenance is Provenance.AFTER_NEIGHBOUR]
    own = runs[: len(runs) - len(further)]
    climb = [run for run in own if run.provenance is Provenance.IN_CLIMB and run.fits]
    shown, deciding = (climb or own)[-1], own[-1]
    words = ending_of(deciding).words
    if deciding.error is not None and deciding.error.is_fragmentation:
        words += " (fragmentation)"
    if climb and not deciding.fits:
        then = ended = f"{deciding.candidate.batch_size}: {words}"
    else:
        then = _words_for_larger(further)
        ended = f"{words}; {then}" if then else words
    return TrialRow(
        number=record.number,
        purpose=shown.purpose.value,
        run=shown,
        configuration=_configuration(shown, climb),
        batch=_batch(shown, climb),
        ending=ending_of(deciding),
        ended=ended,
        then=then,
        share=None if shown.peak_bytes is None else shown.peak_bytes / budget.limit_bytes,
        error=deciding.error,
        duration_s=runs[-1].duration_s or 0.0,
    )


def peak_of_limit(peak_bytes: int, budget: Budget) -> str:
    return f"{format_bytes(peak_bytes)} of {format_bytes(budget.limit_bytes)} ({peak_bytes / budget.limit_bytes:.0%})"


def _words_for_larger(runs: Sequence[Run]) -> str:
    fitted = [f"{run.candidate.batch_size} too" for run in runs if run.fits][-1:]
    failed = [f"{run.candidate.batch_size}: {ending_of(run).words}" for run in runs if not run.fits]
    return ", ".join([*fitted, *failed])


def _batch(shown: Run, climb: Sequence[Run]) -> str:
    if shown.buckets:
        return ", ".join(f"{size} of length {length}" for length, size in shown.buckets)
    last = str(shown.candidate.batch_size)
    return f"{climb[0].candidate.batch_size} to {last}" if len(climb) > 1 else last


def _configuration(shown: Run, climb: Sequence[Run]) -> str:
    batch = _batch(shown, climb)
    if shown.buckets:
        return f"alternating buckets, {batch}"
    return f"batch {batch}, {shown.candidate.lane}{', to time it' if shown.aim is Aim.TIMING else ''}"
