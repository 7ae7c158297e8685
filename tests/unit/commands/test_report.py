"""Probes in their ledgers: shown again, found by any name, compared and cleaned up."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from oomtune.commands.comparison import differences
from oomtune.commands.report import RENDERINGS, explanation_of, from_ledger
from oomtune.domain import ProbeSpec, Verdict
from oomtune.errors import UsageProblem
from oomtune.storage.explanations import save_explanation
from oomtune.storage.ledger import Ledger
from oomtune.storage.ledger_format import About
from oomtune.storage.ledger_index import clean, find_ledger, read_ledger
from tests.support.explanations import explanation
from tests.support.finished import (
    MIB,
    FailingDevice,
    InterruptedDevice,
    finished,
    probe_spec,
    spec_values,
    write_ledger,
)

WAYS = {
    "tuned": {},
    "stopped": {"max_trials": 3},
    "nothing_fits": {"limit_bytes": 30 * MIB},
    "failed": {"device_class": FailingDevice},
    "interrupted": {"device_class": InterruptedDevice},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_probe_is_restored_from_its_ledger(way: str, tmp_path: Path) -> None:
    result = finished(probe_spec(with_data=True), **WAYS[way])  # type: ignore[arg-type]
    assert result.verdict is Verdict(way)
    ledger = read_ledger(write_ledger(tmp_path, result, spec_values()))
    assert ledger is not None
    again = from_ledger(ledger)
    expected = dataclasses.replace(result, ledger_path=str(ledger.path), tuned_path=again.result.tuned_path)
    assert again.result == expected
    assert again.about.values == spec_values()
    assert bool(again.tuned_text) == (way in ("tuned", "stopped"))
    if again.tuned_text:
        assert result.best is not None
        assert yaml.safe_load(again.tuned_text)["tuned"]["batch_size"] == result.best.candidate.batch_size


def test_ranges_and_lengths_do_not_make_a_ledger_large(tmp_path: Path) -> None:
    result = finished(probe_spec(with_data=True, search__batch_size={"min": 1, "max": 100_000}))
    path = write_ledger(tmp_path, result, spec_values())
    assert path.stat().st_size < 100_000
    found = read_ledger(path)
    assert found is not None
    assert found.contents.about is not None
    assert found.contents.about.spec == result.spec


def test_a_killed_probe_is_shown_as_far_as_it_got(tmp_path: Path) -> None:
    result = finished(max_trials=4)
    ledger = read_ledger(write_ledger(tmp_path, result, spec_values(), ends=False))
    assert ledger is not None
    shown = from_ledger(ledger).result
    assert (shown.verdict, shown.records, shown.best) == (Verdict.INTERRUPTED, result.records, result.best)
    assert shown.problem is not None
    assert "did not finish" in shown.problem.message


def test_a_running_probe_is_listed_as_running_and_not_removed(tmp_path: Path) -> None:
    result = finished(max_trials=2)
    path = write_ledger(tmp_path, result, spec_values(), ends=False)
    with Ledger.open(tmp_path, result.spec.name, {"key": ""}, limit_bytes=result.budget.limit_bytes):
        found = read_ledger(path)
        assert found is not None
        assert found.running
        assert clean([tmp_path], time.time() + 60).removed == ()
    assert clean([tmp_path], time.time() + 60).removed == (path,)


def test_listing_takes_no_locks(tmp_path: Path) -> None:
    path = write_ledger(tmp_path, finished(max_trials=2), spec_values(), ends=False)
    code = (
        "import pathlib, sys, oomtune.storage.ledger_index as archive;"
        "sys.addaudithook(lambda event, _: print(event) if event.startswith('fcntl.') else None);"
        f"print(len(archive.list_ledgers([pathlib.Path({str(path.parent)!r})])))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1"]


def test_a_process_of_another_machine_does_not_count_as_running(tmp_path: Path) -> None:
    result = finished(max_trials=2)
    path = write_ledger(tmp_path, result, spec_values(), ends=False)
    path.write_text(path.read_text().replace(f'"host": "{platform.node()}"', '"host": "elsewhere"'))
    with path.open("rb"):
        found = read_ledger(path)
    assert found is not None
    assert found.contents.prober is not None
    assert (found.contents.prober.host, found.running) == ("elsewhere", False)


def test_a_fixed_crash_is_not_shown_after_the_probe_went_on(tmp_path: Path) -> None:
    failed = finished(device_class=FailingDevice)
    path = write_ledger(tmp_path, failed, spec_values())
    limit = failed.budget.limit_bytes
    with Ledger.open(tmp_path, failed.spec.name, {"key": ""}, limit_bytes=limit) as ledger:
        about = ledger_about(path)
        ledger.begin(about, "2026-11-17T10:00:00Z")
        rest = finished(earlier=ledger.records)
        for record in rest.records[len(ledger.records) :]:
            ledger.append(record)
    found = read_ledger(path)
    assert found is not None
    assert tuple(found.contents.records) == rest.records
    assert path.read_text().count('{"about"') == 1  # it is the same, and kept once


def ledger_about(path: Path) -> About:
    found = read_ledger(path)
    assert found is not None
    assert found.contents.about is not None
    return found.contents.about


def test_an_old_ledger_without_a_spec_asks_for_another_probe(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, "old", {}, limit_bytes=1000) as ledger:
        path = ledger.path
    found = read_ledger(path)
    assert found is not None
    assert found.name == "old"
    with pytest.raises(UsageProblem, match="does not say what was probed"):
        from_ledger(found)


def test_a_ledger_is_found_by_path_spec_answer_or_name(tmp_path: Path) -> None:
    (tmp_path / ".oomtune").mkdir()
    spec = tmp_path / "model.yaml"
    answer = str(tmp_path / "model.tuned.yaml")
    older = write_ledger(tmp_path / ".oomtune", finished(max_trials=2), spec_values(), key="old", spec_path=str(spec))
    os.utime(older, (1, 1))
    newer = write_ledger(
        tmp_path / ".oomtune", finished(max_trials=3), spec_values(), spec_path=str(spec), output=answer
    )
    for word in (str(newer), "model.yaml", str(spec), "model.tuned.yaml", "imdb-transformer"):
        assert find_ledger(word, tmp_path).path == newer
    assert find_ledger(str(older), tmp_path).path == older
    for word in ("other.yaml", "nothing", str(tmp_path / "none.jsonl")):
        with pytest.raises(UsageProblem) as raised:
            find_ledger(word, tmp_path)
        assert "--list" in raised.value.hint


def _digest(spec: ProbeSpec) -> str:
    """Return the name under which an explanation of the spec is saved."""
    return hashlib.sha256(f"{spec.folder}\0{'0' * 64}".encode()).hexdigest()[:16]


def test_cleaning_removes_old_files_that_no_remaining_probe_needs(tmp_path: Path) -> None:
    spec = probe_spec(with_data=True)
    assert spec.scan is not None
    for name in ("used", "unused"):
        (tmp_path / "scans").mkdir(exist_ok=True)
        for suffix in (".json", ".npz"):
            (tmp_path / "scans" / f"{name}{suffix}").write_text("{}")
            os.utime(tmp_path / "scans" / f"{name}{suffix}", (1, 1))
    scan = dataclasses.replace(spec.scan, rows_path=str(tmp_path / "scans" / "used.npz"))
    kept = write_ledger(tmp_path, finished(dataclasses.replace(spec, scan=scan), max_trials=1), spec_values())
    old = write_ledger(tmp_path, finished(max_trials=1), spec_values(), key="old")
    os.utime(old, (1, 1))
    (tmp_path / "scans" / "just-gone.json").symlink_to("nowhere")  # what another clean-up leaves of a name
    explained, forgotten = (tmp_path / "explanations" / name for name in (f"{_digest(spec)}.json", "other.json"))
    for path in (explained, forgotten):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        os.utime(path, (1, 1))
    cleaned = clean([tmp_path], time.time() - 1000)
    assert {path.name for path in cleaned.removed} == {old.name, "unused.json", "unused.npz", "other.json"}
    assert explained.exists()
    assert kept.exists()
    assert (tmp_path / "scans" / "used.npz").exists()
    assert cleaned.freed_bytes > 0


def test_a_report_shows_the_explanation_of_its_spec(tmp_path: Path) -> None:
    (tmp_path / ".oomtune").mkdir()
    result = finished()
    path = write_ledger(tmp_path / ".oomtune", result, spec_values())
    save_explanation(explanation(result), tmp_path / "model.yaml", "0" * 64, spec_values())
    found = read_ledger(path)
    assert found is not None
    assert explanation_of(from_ledger(found)) == explanation(result)


def test_a_report_shows_an_explanation_with_other_flags_and_what_differs(
    tmp_path: Path,
) -> None:
    (tmp_path / ".oomtune").mkdir()
    spec_path = tmp_path / "model.yaml"
    result = finished()
    path = write_ledger(tmp_path / ".oomtune", result, spec_values(), spec_path=str(spec_path))
    explained = spec_values(search__resolution=0.1)
    save_explanation(explanation(result), spec_path, "1" * 64, explained)
    save_explanation(explanation(result), tmp_path / "other.yaml", "2" * 64, explained)
    found = read_ledger(path)
    assert found is not None
    shown = from_ledger(found)
    latest = explanation_of(shown)
    assert latest is not None
    (notice,) = latest.notices
    assert "differs from the probed one: search.resolution was 0.1 and not 0.02." in notice
    assert notice in RENDERINGS[".html"].render(shown)
    # What such a report needs is kept as long as the ledger is.
    assert len(clean([tmp_path / ".oomtune"], time.time() + 60, tmp_path / "model.yaml").removed) == 2


def test_a_comparison_covers_the_spec_the_environment_and_the_answer() -> None:
    before = finished()
    after = dataclasses.replace(
        finished(limit_bytes=400 * 1024**2), environment={**before.environment, "tensorflow": "2.22.0"}
    )
    asked = spec_values(search__resolution=0.05)
    found = {(one.section, one.what): one for one in differences(before, after, spec_values(), asked)}
    assert found["spec", "search.resolution"].words == ("0.02", "0.05")
    assert found["environment", "tensorflow"].words == ("2.21.0", "2.22.0")
    assert found["environment", "limit"].words == ("512 MiB", "400 MiB")
    assert found["environment", "limit"].change == "-21.9%"
    assert before.best is not None
    assert found["answer", "batch size"].before == before.best.candidate.batch_size
    assert ("largest batch", "sequence 128, float32") in found
    assert differences(before, before, spec_values(), spec_values()) == []


def test_a_missing_answer_does_not_count_as_a_change_of_unset_entries() -> None:
    none, found = finished(limit_bytes=30 * MIB), finished()
    words = {(one.section, one.what): one.words for one in differences(none, found, spec_values(), spec_values())}
    assert ("answer", "remat") not in words
    assert all(before != after for before, after in words.values())
    assert found.best is not None
    assert words["answer", "batch size"] == ("—", str(found.best.candidate.batch_size))
