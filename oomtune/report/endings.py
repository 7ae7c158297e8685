"""How a run ended, in words: the same wherever it is shown."""

from __future__ import annotations

from enum import Enum

from oomtune.domain import TrialRecord
from oomtune.report.findings import is_fragmented


class Ending(Enum):
    """How a run ended, with a sign that needs no colour."""

    FITS = ("fits", "●", "fits")
    OVER_HEADROOM = ("over_headroom", "▲", "over the headroom")
    DEVICE_OOM = ("device_oom", "✕", "out of memory")
    HOST_OOM = ("host_oom", "★", "out of host memory")
    TIMEOUT = ("timeout", "◆", "timed out")
    CRASH = ("crash", "■", "failed")

    def __init__(self, key: str, sign: str, words: str) -> None:
        self.key = key
        self.sign = sign
        self.words = words


def ending_of(record: TrialRecord) -> Ending:
    outcome = record.outcome
    if outcome.over_headroom:
        return Ending.OVER_HEADROOM
    return Ending[outcome.kind.name]


def outcome_words(record: TrialRecord) -> str:
    outcome, words = record.outcome, ending_of(record).words
    if is_fragmented(record):
        words = f"{words} (fragmentation)"
    # A climb's own sizes fitted; the one it ended at did not.
    return f"{outcome.failed_batch_size}: {words}" if outcome.points and outcome.failed_batch_size else words
