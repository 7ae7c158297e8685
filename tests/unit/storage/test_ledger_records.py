from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomtune.domain import Aim, BucketTurns, Climb, Confirm, Search
from oomtune.storage.ledger_records import parse_record, record_document

EARLIER_LINES = (Path(__file__).parent / "earlier_records.jsonl").read_text().splitlines()
"""Lines of ledgers of version 0.1, of every kind of trial and every way to end."""


@pytest.mark.parametrize("line", EARLIER_LINES)
def test_a_line_of_an_earlier_version_is_written_back_byte_for_byte(line: str) -> None:
    assert json.dumps(record_document(parse_record(line))) == line


def test_every_kind_of_trial_is_told_apart() -> None:
    trials = [parse_record(line).trial for line in EARLIER_LINES]
    assert {type(trial) for trial in trials} == {Climb, Search, Confirm, BucketTurns}
    assert {trial.aim for trial in trials} == set(Aim)


def test_a_line_from_before_findings_were_kept_is_read() -> None:
    document = json.loads(EARLIER_LINES[3])
    record = parse_record(json.dumps(document))
    for key in ("findings", "allocator", "further", "further_failed"):
        document["outcome"].pop(key)
    for key in ("dissected", "further", "afar_s", "for_time", "every_size"):
        document["trial"].pop(key)
    earlier = parse_record(json.dumps(document))
    assert earlier.trial.candidate == record.trial.candidate
    assert earlier.outcome.peak_bytes == record.outcome.peak_bytes


def test_other_text_is_no_record() -> None:
    with pytest.raises(ValueError, match="no record of a trial"):
        parse_record('{"number": 1, "trial": {}}')
