"""`oomtune report`: what it shows, lists, compares and removes, and where it writes."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from oomtune.commands.comparison import headings
from oomtune.commands.probe import FinishedProbe
from oomtune.commands.report import RENDERINGS, ProbeFiles, from_ledger, probe_files
from oomtune.errors import OutputNotWritable, UsageProblem
from oomtune.storage.ledger_index import read_ledger
from tests.support.cli import Cli
from tests.support.finished import FailingDevice, about_result, finished, spec_values, write_ledger


def test_compared_probes_are_headed_by_name_and_time_or_else_by_path(cli: Cli) -> None:
    result = finished(max_trials=2)
    later = dataclasses.replace(finished(max_trials=3), probed_at="2026-11-18T10:00:00Z")
    assert headings(result, later) == (
        "imdb-transformer, 2026-11-16T10:00:00Z", "imdb-transformer, 2026-11-18T10:00:00Z",
    )  # fmt: skip
    one, other = (dataclasses.replace(result, ledger_path=f"/kept/{name}.jsonl") for name in ("a", "b"))
    assert headings(one, other) == ("/kept/a.jsonl", "/kept/b.jsonl")
    first, second = (
        write_ledger(cli.ledger_folder, each, spec_values(), key=each.probed_at) for each in (result, later)
    )
    shown = " ".join(cli("report", "--compare", first, second).out.split())
    assert "imdb-transformer" in shown.partition("trials")[0]


def test_reports_overwrite_only_files_that_oomtune_wrote(tmp_path: Path) -> None:
    paths = [tmp_path / f"report{suffix}" for suffix in RENDERINGS]
    outputs = probe_files(paths)
    ledger = read_ledger(write_ledger(tmp_path, finished(max_trials=2), spec_values()))
    assert ledger is not None
    for _ in range(2):  # over nothing, and over our own
        outputs.check(force=False)
        outputs.write(from_ledger(ledger))
    for path in paths:
        path.write_text("mine\n")
        with pytest.raises(UsageProblem, match="was not changed") as raised:
            probe_files([path]).check(force=False)
        assert "-o" in raised.value.hint
        assert RENDERINGS[path.suffix].flag == "-o" or RENDERINGS[path.suffix].flag not in raised.value.hint
        probe_files([path]).check(force=True)
    for wrong in (tmp_path / "report.pdf", tmp_path):
        with pytest.raises(UsageProblem):
            probe_files([wrong]).check(force=False)
    with pytest.raises(UsageProblem, match="also what -o writes"):
        probe_files([tmp_path / "new.md", tmp_path / "." / "new.md"]).check(force=False)
    with pytest.raises(UsageProblem, match="not a regular file"):
        ProbeFiles(files=[(Path("/dev/null"), RENDERINGS[".csv"])]).check(force=True)
    with pytest.raises(OutputNotWritable):
        probe_files([tmp_path / "no" / "folder.html"]).check(force=False)
    with pytest.raises(OutputNotWritable):
        ProbeFiles(tensorboard=paths[0] / "logs").check(force=False)


def test_a_github_step_summary_is_appended_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.md"
    path.write_text("of another step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    result = finished(max_trials=2)
    outputs = ProbeFiles(files=[(path, RENDERINGS[".md"])])
    outputs.check(force=False)
    outputs.write(FinishedProbe(result=result, about=about_result(result, spec_values())))
    assert path.read_text().startswith("of another step\n<!-- written by oomtune -->")


def test_the_command_shows_lists_compares_and_cleans(cli: Cli) -> None:
    result = finished()
    first = write_ledger(cli.ledger_folder, result, spec_values(), key="1")
    second = write_ledger(cli.ledger_folder, finished(max_trials=5), spec_values(search__resolution=0.1), key="2")
    os.utime(first, (1_000, 1_000))
    drawn = cli("report", first, "-o", "out.html", "-o", "out.csv", "--tensorboard", "logs", "--json")
    assert (drawn.code, drawn.err) == (0, "")
    assert result.best is not None
    assert drawn.document["best"]["batch_size"] == result.best.candidate.batch_size
    assert (cli.folder / "out.html").stat().st_size > 1_000_000
    assert list((cli.folder / "logs").iterdir())
    printed = cli("report", "imdb-transformer")
    assert "stopped by --max-trials" in printed.out.lower()
    listed = cli("report", "--list")
    assert f"  {first}\n" in listed.out
    assert [one["verdict"] for one in cli("report", "--list", "--json").document["ledgers"]] == ["stopped", "tuned"]
    changes = cli("report", "--compare", first, second, "--json").document["changes"]
    assert {"section": "spec", "what": "search.resolution", "before": 0.02, "after": 0.1} in changes
    assert "search.resolution" in cli("report", "--compare", first, second).out
    beside = cli.folder / "configs" / ".oomtune"
    third = write_ledger(beside, result, spec_values(), key="3", spec_path=str(cli.folder / "configs" / "train.py"))
    for file in ("train.py", "model.yaml"):
        (cli.folder / "configs" / file).touch()
    for place in ("configs", "configs/.oomtune", "configs/train.py"):
        assert cli("report", "--list", place, "-q").out.splitlines() == [str(third)]
    assert "no probes of " in cli("report", "--list", "configs/model.yaml").out
    assert str(third) not in cli("report", "--list").out
    assert cli("report", "configs/train.py", "--json").document["ledger_path"] == str(third)
    assert str(first) in cli("report", "--clean").out
    assert not first.exists()
    assert second.exists()
    os.utime(third, (1_000, 1_000))
    assert cli("report", "--clean", "configs", "-q").out == f"{third}\n"


def test_quiet_hides_the_trials_and_verbose_shows_their_errors(cli: Cli) -> None:
    path = write_ledger(cli.ledger_folder, finished(device_class=FailingDevice), spec_values())
    plain, quiet, verbose = (cli("report", path, *words).out for words in ((), ("-q",), ("-v",)))
    assert "calibrate" in plain
    assert "calibrate" not in quiet
    assert "trial 3: ValueError: labels" in verbose
    assert "trial 3: ValueError: labels" not in plain


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--list", "x"),
        ("--compare", "x"),
        ("--list", "--clean"),
        ("x",),
        ("--clean", "--older-than", "soon"),
        ("x", "-o", "x.pdf"),
        ("--list", "-o", "x.html"),
        ("--clean", "--tensorboard", "logs"),
        ("--compare", "x", "y", "-o", "x.html"),
        ("x", "--older-than", "1d"),
        ("--list", "a", "b"),
    ],
)
def test_options_that_exclude_each_other_are_bad_usage(words: tuple[str, ...], cli: Cli) -> None:
    ran = cli("report", *words)
    assert ran.code == 2
    assert ran.err.startswith("oomtune: ")
    assert "Traceback" not in ran.err
