"""Selecting ledgers: the state folder holds those of all projects of a user."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from oomtune.domain import ProbeResult
from oomtune.storage.ledger import Ledger
from oomtune.storage.ledger_index import clean, ledger_folders_of, list_ledgers, read_ledger, resolve_subject
from tests.support.cli import Cli
from tests.support.finished import finished, spec_values, write_ledger


@pytest.fixture(scope="module")
def result() -> ProbeResult:
    return finished(max_trials=1)


def kept_of(folder: Path, result: ProbeResult, *specs: Path) -> dict[str, Path]:
    """Write an old ledger for each of these specs into one folder."""
    found = {}
    for spec in specs:
        spec.parent.mkdir(parents=True, exist_ok=True)
        spec.touch()
        path = write_ledger(
            folder, result, spec_values(), key=str(spec), spec_path=str(spec), output=str(spec.with_suffix(".tuned"))
        )
        os.utime(path, (1_000, 1_000))
        found[spec.name] = path
    return found


@pytest.mark.parametrize(
    ("word", "names"),
    [("a", {"one", "two", "deep"}), ("a/one", {"one"}), ("a/one.tuned", {"one"}), ("b", {"other"}), (".", None)],
)
def test_naming_a_folder_or_a_spec_selects_only_its_ledgers(
    word: str, names: set[str] | None, result: ProbeResult, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    specs = (tmp_path / part for part in ("a/one", "a/two", "a/below/deep", "b/other", "ab/like"))
    kept = kept_of(state, result, *specs)
    (tmp_path / "a" / "one.tuned").touch()
    subject = resolve_subject(word, tmp_path)
    meant = {kept[name] for name in (kept if names is None else names)}
    assert {one.path for one in list_ledgers([state], subject)} == meant
    assert set(clean([state], time.time() - 60, subject).removed) == meant
    assert {path for path in kept.values() if path.exists()} == {*kept.values()} - meant


def test_cleaning_up_after_one_spec_leaves_the_scans_of_others(result: ProbeResult, tmp_path: Path) -> None:
    state = tmp_path / "state"
    kept = kept_of(state, result, tmp_path / "a" / "one", tmp_path / "b" / "other")
    scan = state / "scans" / "of-somebody.json"
    scan.parent.mkdir()
    scan.write_text("{}")
    os.utime(scan, (1_000, 1_000))
    assert clean([state], time.time() - 60, tmp_path / "a").removed == (kept["one"],)
    assert set(clean([state], time.time() - 60).removed) == {kept["other"], scan}


def test_ledgers_in_a_moved_folder_still_belong_to_it(result: ProbeResult, tmp_path: Path) -> None:
    path = write_ledger(tmp_path / ".oomtune", result, spec_values(), spec_path="/where/it/was/model.yaml")
    subject = resolve_subject(".oomtune", tmp_path)
    assert ledger_folders_of(subject)[0] == tmp_path / ".oomtune"
    assert [one.path for one in list_ledgers(ledger_folders_of(subject)[:1], subject)] == [path]


def test_the_command_cleans_up_after_the_named_folder(cli: Cli, result: ProbeResult) -> None:
    state = cli.ledger_folder
    kept = kept_of(state, result, cli.folder / "a" / "one", cli.folder / "b" / "other")
    assert cli("report", "--list", "a", "-q").out == f"{kept['one']}\n"
    assert cli("report", "--clean", "a", "-q").out == f"{kept['one']}\n"
    assert kept["other"].exists()


@pytest.mark.parametrize("name", ["--force", "-", ".hidden", "/"])
def test_no_spec_name_makes_a_ledger_hidden_or_look_like_a_flag(name: str, tmp_path: Path) -> None:
    with Ledger.open(tmp_path, name, {}, limit_bytes=1_000) as ledger:
        assert ledger.path.name[0].isalnum()
        assert read_ledger(ledger.path) is not None
