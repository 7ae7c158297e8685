from __future__ import annotations

from pathlib import Path

import pytest

from oomtune.domain import Candidate, Fitted, Kind, Search, TrialRecord
from oomtune.errors import EnvironmentProblem, OutputNotWritable
from oomtune.storage.ledger import LIMIT_DRIFT, Ledger, ledger_folder
from oomtune.storage.ledger_index import ledger_folders
from tests.support.outcomes import failed

KEY = {"spec": "abc", "tensorflow": "2.21.0"}


def record(number: int, kind: Kind = Kind.FITS) -> TrialRecord:
    peak_bytes = number * 100
    return TrialRecord(
        number=number,
        trial=Search(candidate=Candidate(batch_size=number, sequence_length=7)),
        outcome=Fitted(peak_bytes=peak_bytes, step_ms=1.5)
        if kind is Kind.FITS
        else failed(kind, peak_bytes=peak_bytes, batch_size=number),
    )


def open_ledger(
    folder: Path, *, fresh: bool = False, limit_bytes: int = 1000, max_drift: float = LIMIT_DRIFT, **key: str
) -> Ledger:
    return Ledger.open(folder, "model", {**KEY, **key}, limit_bytes=limit_bytes, max_drift=max_drift, fresh=fresh)


def test_records_are_read_back_unchanged(tmp_path: Path) -> None:
    written = [record(1), record(2, Kind.DEVICE_OOM)]
    with open_ledger(tmp_path) as ledger:
        for each in written:
            ledger.append(each)
    with open_ledger(tmp_path) as again:
        assert again.records == written


def test_a_record_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.append(record(1))
        assert len(ledger.path.read_text().splitlines()) == 2


def test_an_incomplete_last_line_is_ignored_with_a_notice(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.append(record(1))
        ledger.append(record(2))
        path = ledger.path
    path.write_bytes(path.read_bytes()[:-10])
    with open_ledger(tmp_path) as again:
        assert again.records == [record(1)]
        assert "cut off and is ignored" in again.notices[0]
        again.append(record(3))
    with open_ledger(tmp_path) as last:
        assert last.records == [record(1), record(3)]
        assert last.notices == []


def test_a_file_that_is_no_ledger_is_replaced(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        path = ledger.path
    for junk in (b"\xff\x00junk", b"[]\n", b'{"format": 99}\n', b""):
        path.write_bytes(junk)
        with open_ledger(tmp_path) as again:
            assert again.records == []
            again.append(record(1))
        with open_ledger(tmp_path) as kept:
            assert kept.records == [record(1)]


def test_any_change_of_the_key_starts_another_ledger(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.append(record(1))
    with open_ledger(tmp_path, tensorflow="2.22.0") as other:
        assert other.records == []
    with open_ledger(tmp_path) as again:
        assert again.records == [record(1)]


def test_fresh_starts_over(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.append(record(1))
    with open_ledger(tmp_path, fresh=True) as ledger:
        assert ledger.records == []
    with open_ledger(tmp_path) as again:
        assert again.records == []


def test_two_probes_at_once_get_a_ledger_each(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as first, open_ledger(tmp_path) as second:
        assert first.path != second.path
        assert "ledger of its own" in second.notices[0]
        first.append(record(1))
        second.append(record(2))
    with open_ledger(tmp_path) as one, open_ledger(tmp_path) as two:
        assert (one.records, two.records) == ([record(1)], [record(2)])


def test_an_automatic_limit_that_moved_a_little_is_the_same_limit(tmp_path: Path) -> None:
    with open_ledger(tmp_path, limit_bytes=1000) as ledger:
        ledger.append(record(1))
    with open_ledger(tmp_path, limit_bytes=1050) as near:
        assert (near.limit_bytes, near.records) == (1000, [record(1)])
    with open_ledger(tmp_path, limit_bytes=900) as near:
        assert (near.limit_bytes, near.records) == (1000, [record(1)])
    with open_ledger(tmp_path, limit_bytes=2000) as far:
        assert (far.limit_bytes, far.records) == (2000, [])
        assert "free memory has changed" in far.notices[0]


def test_a_limit_that_a_card_can_no_longer_give_is_another_limit(tmp_path: Path) -> None:
    with open_ledger(tmp_path, limit_bytes=1000) as ledger:
        ledger.append(record(1))
    with open_ledger(tmp_path, limit_bytes=960, max_drift=0.05) as near:
        assert near.records == [record(1)]
    with open_ledger(tmp_path, limit_bytes=900, max_drift=0.05) as less:
        assert (less.limit_bytes, less.records) == (900, [])


def test_variables_that_trials_need_are_remembered(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.append(record(1))
        ledger.save_environment({"A": "1"})
        ledger.append(record(2))
    with open_ledger(tmp_path) as again:
        assert again.environment == {"A": "1"}
        assert again.records == [record(1), record(2)]
        before = again.path.read_text()
        again.save_environment({"A": "1"})
        assert again.path.read_text() == before


def test_a_crash_is_run_again_because_it_may_have_been_fixed(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.append(record(1))
        ledger.append(record(2, Kind.CRASH))
    with open_ledger(tmp_path) as again:
        assert again.records == [record(1)]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputNotWritable, match="ledger can't be written"):
        open_ledger(tmp_path / "file" / "below")


def test_a_name_with_slashes_stays_in_its_folder(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, "../../etc/<b>evil", KEY, limit_bytes=1) as ledger:
        assert ledger.path.parent == tmp_path


def test_ledgers_are_beside_the_spec_if_it_has_an_oomtune_folder(tmp_path: Path) -> None:
    assert ledger_folder(tmp_path / "model.yaml") != tmp_path / ".oomtune"
    (tmp_path / ".oomtune").mkdir()
    assert ledger_folder(tmp_path / "model.yaml") == tmp_path / ".oomtune"


def test_a_user_without_a_home_learns_where_ledgers_can_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)  # as in a container: a number that no list of users has
    with pytest.raises(EnvironmentProblem, match="no home folder") as caught:
        ledger_folder(tmp_path / "model.yaml")
    assert ".oomtune beside the spec" in caught.value.hint
    (tmp_path / ".oomtune").mkdir()
    assert ledger_folders(tmp_path) == [ledger_folder(tmp_path / "model.yaml")] == [tmp_path / ".oomtune"]
