"""How a run ended, in words: the same wherever it is shown."""

from __future__ import annotations

from enum import Enum

from oomtune.domain import FailedSize, Outcome, Run, TrialRecord
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


def ending_of(ended: Outcome | Run | FailedSize) -> Ending:
    return Ending.OVER_HEADROOM if ended.over_headroom else Ending[ended.kind.name]


def outcome_words(record: TrialRecord) -> str:
    outcome, words = record.outcome, ending_of(record.outcome).words
    if is_fragmented(record):
        words = f"{words} (fragmentation)"
    if outcome.points and outcome.failed_batch_size:
        return f"{outcome.failed_batch_size}: {words}"  # a climb's own sizes fitted; the one it ended at did not
    return "; ".join(filter(None, (words, further_words(record))))


def further_words(record: TrialRecord) -> str:
    """What came of the larger sizes that a trial went on to; nothing if there were none."""
    outcome = record.outcome
    fitted = f"{outcome.further[-1].batch_size} too" if outcome.further else ""
    failed = outcome.further_failed
    return ", ".join(filter(None, (fitted, f"{failed.batch_size}: {ending_of(failed).words}" if failed else "")))
