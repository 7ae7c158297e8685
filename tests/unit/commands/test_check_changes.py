"""Edits of a tuned config, and of the spec that it was found for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from oomtune.commands.check import CheckOptions
from oomtune.commands.check.changes import Edits
from oomtune.commands.check.place import Place
from oomtune.commands.check.run import result_before_run
from oomtune.commands.check.subject import check_buckets, read_subject
from oomtune.devices import Resolved
from oomtune.domain import Budget, CheckResult, CheckVerdict
from oomtune.errors import UsageProblem
from oomtune.report.check import check_message, edit_notice
from oomtune.spec import digest_of
from tests.support.checks import write_spec_and_tuned
from tests.support.specs import CPU, small_spec


def edits(path: Path, *settings: str) -> Edits:
    return read_subject(path, CheckOptions(settings=settings)).edits


def edit(path: Path, **entries: Any) -> None:
    """Set entries of the section `training` in a file."""
    values = yaml.safe_load(path.read_text())
    values["training"] |= entries
    path.write_text(yaml.safe_dump(values))


def begun(path: Path, **options: Any) -> CheckResult:
    wanted = CheckOptions(**options)
    subject = read_subject(path, wanted)
    here = Place(resolved=Resolved(device=CPU, budget=Budget(limit_bytes=1_000)))
    return result_before_run(subject, subject.loaded, here, wanted)


def test_entries_set_by_flags_are_no_edits_of_the_spec(tmp_path: Path) -> None:
    path = write_spec_and_tuned(tmp_path)
    assert edits(path) == Edits()
    assert edits(path, "trial.steps=9") == Edits()
    now = small_spec(training__optimizer="adam", device__memory_limit="48MiB", search__resolution=0.3)
    (tmp_path / "net.yml").write_text(yaml.safe_dump(now))
    found = edits(path, "trial.steps=9")
    assert found.lines[:2] == ("--- out.yaml", "+++ net.yml")
    assert found.lines[3:] == ("-  optimizer: sgd", "+  optimizer: adam")
    assert (found.spec_edited, found.file_edited) == (True, False)


def test_an_edited_tuned_config_comes_second_in_the_diff(tmp_path: Path) -> None:
    path = write_spec_and_tuned(tmp_path)
    edit(path, optimizer="adam")
    found = edits(path)
    assert found.lines[:2] == ("--- net.yml", "+++ out.yaml")
    assert found.lines[3:] == ("-  optimizer: sgd", "+  optimizer: adam")
    assert (found.file_edited, found.spec_edited) == (True, False)
    result = begun(path)
    assert edit_notice(result) == "This file has been edited since it was tuned:"
    assert "before the edit" not in check_message(result).sentence
    edit(tmp_path / "net.yml", loss="huber")
    assert (edits(path).file_edited, edits(path).spec_edited) == (True, True)
    assert "have both been edited" in edit_notice(begun(path))


@pytest.mark.parametrize("verdict", ["fits", "does_not_fit", "broken"])
def test_a_verdict_on_an_edited_spec_says_that_it_is_about_the_spec_before_the_edit(
    verdict: str, tmp_path: Path
) -> None:
    path = write_spec_and_tuned(tmp_path)
    edit(tmp_path / "net.yml", optimizer="adam")
    result = dataclasses.replace(begun(path), verdict=CheckVerdict(verdict))
    assert check_message(result).sentence.endswith(", with its spec as it was before the edit")
    assert verdict == "broken" or "--update" in check_message(result).hint
    assert edit_notice(result) == "The spec that this file was tuned from has been edited since:"


def test_an_update_uses_the_edited_spec_with_the_flags_of_its_probe_and_the_new_ones(tmp_path: Path) -> None:
    path = write_spec_and_tuned(tmp_path)
    edit(tmp_path / "net.yml", optimizer="adam")
    options = CheckOptions(update=True, settings=("search.resolution=0.2",))
    subject = read_subject(path, options)
    spec = subject.loaded.spec
    assert (subject.uses_edited_spec, subject.loaded.path) == (True, tmp_path / "net.yml")
    assert (spec.training.optimizer, spec.device.like, spec.space.resolution) == ("adam", "T4", 0.2)
    assert subject.loaded.values["model"]["layers"][1]["Dense"]["units"] == 64
    assert {"device.like", "model.layers.1.Dense.units", "search.resolution"} <= set(subject.loaded.overridden)
    result = begun(path, update=True)
    assert result.uses_edited_spec
    assert "the edited spec" in check_message(dataclasses.replace(result, verdict=CheckVerdict.UPDATED)).sentence
    assert read_subject(path, CheckOptions()).uses_edited_spec is False


def test_an_update_of_an_edited_tuned_config_searches_the_spec_in_it(tmp_path: Path) -> None:
    path = write_spec_and_tuned(tmp_path)
    edit(path, optimizer="adam")
    edit(tmp_path / "net.yml", loss="huber")
    options = CheckOptions(update=True)
    assert read_subject(path, options).uses_edited_spec is False


def test_edits_that_an_update_preserved_do_not_count_as_edits_of_the_spec(tmp_path: Path) -> None:
    path = write_spec_and_tuned(tmp_path)
    edit(path, optimizer="adam", metrics=["mae"])
    values = yaml.safe_load(path.read_text())
    values["model"]["layers"][2]["Dense"]["units"] = 96
    path.write_text(yaml.safe_dump(values))
    kept = read_subject(path, CheckOptions(update=True)).edits.keys_in_file
    assert sorted(kept) == ["model.layers.2.Dense.units", "training.metrics", "training.optimizer"]
    evidence = values["tuned"]["evidence"]
    evidence |= {
        "overridden": [*evidence["overridden"], *kept],
        "spec_sha256": digest_of({key: value for key, value in values.items() if key != "tuned"}),
    }
    path.write_text(yaml.safe_dump(values))
    assert edits(path) == Edits()
    edit(tmp_path / "net.yml", loss="huber")
    options = CheckOptions(update=True)
    searched = read_subject(path, options)
    assert (searched.uses_edited_spec, searched.loaded.path) == (True, tmp_path / "net.yml")
    assert searched.loaded.values["training"] == {"loss": "huber", "metrics": ["mae"], "optimizer": "adam"}
    assert read_subject(path, options).edits.keys_in_file == ()


def test_a_long_diff_ends_with_the_number_of_hidden_lines(tmp_path: Path) -> None:
    path = write_spec_and_tuned(tmp_path)
    (tmp_path / "net.yml").write_text(yaml.safe_dump(small_spec(model={"args": dict.fromkeys(map(str, range(60)), 1)})))
    lines = edits(path).lines
    assert len(lines) == 41
    assert lines[-1].startswith("... and ")


@pytest.mark.parametrize("text", ["model: [\n", "", "\x00"])
def test_a_tuned_config_can_be_checked_after_its_spec_broke_or_disappeared(tmp_path: Path, text: str) -> None:
    path = write_spec_and_tuned(tmp_path)
    (tmp_path / "net.yml").write_text(text)
    (said,) = read_subject(path, CheckOptions()).notices
    assert edits(path).lines == ()
    assert "net.yml" in said
    (tmp_path / "net.yml").unlink()
    assert edits(path) == Edits()


def test_buckets_added_by_hand_for_data_without_lengths_are_an_error_with_its_line(tmp_path: Path) -> None:
    path = write_spec_and_tuned(tmp_path)
    values = yaml.safe_load(path.read_text())
    values["tuned"] |= {"bucket_boundaries": [8, 16], "bucket_batch_sizes": [4, 2]}
    path.write_text(yaml.safe_dump(values))
    subject = read_subject(path, CheckOptions())
    with pytest.raises(UsageProblem, match=rf"{path}:\d+: tuned.bucket_boundaries: ") as raised:
        check_buckets(subject, subject.loaded)
    assert "remove bucket_boundaries" in raised.value.hint


def test_an_unconfirmed_answer_is_not_compared_and_the_words_say_so(tmp_path: Path) -> None:
    path = write_spec_and_tuned(tmp_path)
    values = yaml.safe_load(path.read_text())
    values["tuned"]["evidence"] |= {"confirmed": False, "peak_bytes": 900}
    path.write_text(yaml.safe_dump(values))
    result = begun(path)
    assert (result.confirmed, result.expected_peak_bytes) == (False, None)
    assert "the answer was not confirmed" in result.not_compared
    assert "never been confirmed before" in check_message(result).sentence
    failed = check_message(dataclasses.replace(result, verdict=CheckVerdict.DOES_NOT_FIT))
    assert "no longer" not in failed.sentence
    assert "never confirmed" in failed.sentence
