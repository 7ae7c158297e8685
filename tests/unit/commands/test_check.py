"""The parts of a check, on a fake device: attempts, tolerance, changes since the probe, and updates."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from oomtune.commands.check import CheckOptions
from oomtune.commands.check.changes import changes_since
from oomtune.commands.check.place import Place
from oomtune.commands.check.run import result_before_run, run_trials
from oomtune.commands.check.subject import read_subject, trials_of
from oomtune.commands.check.update import update
from oomtune.commands.prepare import versions
from oomtune.devices import Resolved
from oomtune.domain import (
    BucketTurns,
    Budget,
    Candidate,
    Change,
    CheckResult,
    CheckVerdict,
    Device,
    Kind,
    ProbeResult,
)
from oomtune.domain.observer import SilentObserver
from oomtune.errors import UsageProblem
from oomtune.report.check import check_message, check_report, check_rows
from oomtune.report.json_document import check_document
from oomtune.spec import Document, digest_of
from oomtune.storage.tuned import TunedConfig
from oomtune.trials.fake import FakeDevice
from tests.support.checks import (
    BEYOND_ANY_MACHINE,
    CRASH,
    OOM,
    ScriptedDevice,
    tuned_on,
    unrun_check,
    write_spec_and_tuned,
)
from tests.support.specs import CPU, small_probe_spec, small_spec

SPEC = small_probe_spec(search__batch_size={"min": 1, "max": 1024}, search__resolution=0.0)
BUCKETED = tuned_on(sequence_length=16, bucket_boundaries=(8, 16), bucket_batch_sizes=(120, 60))


def checked(device: FakeDevice, tuned: TunedConfig | None = None, **fields: Any) -> CheckResult:
    result = unrun_check(**fields)
    return run_trials(result, trials_of(result.candidate, tuned), device, SilentObserver())[0]


def test_a_memory_failure_must_show_twice_and_a_crash_once() -> None:
    for endings, verdict, runs in (
        ({}, "fits", 1),
        ({1: OOM}, "fits", 2),
        ({1: OOM, 2: OOM}, "does_not_fit", 2),
        ({1: CRASH}, "broken", 1),
    ):
        device = ScriptedDevice(dict(endings))
        assert (checked(device).verdict, len(device.ran)) == (verdict, runs)


@pytest.mark.parametrize(
    ("seen", "tolerance", "allowed"),
    [(None, 0.05, 950), (940, 0.05, 987), (940, 0.2, 1_000), (500, 0.05, 950)],
)
def test_noise_may_use_the_headroom_up_to_the_limit(seen: int | None, tolerance: float, allowed: int) -> None:
    strict = Budget(limit_bytes=1_000, headroom=0.05)
    result = unrun_check(budget=strict, expected_peak_bytes=seen, tolerance=tolerance)
    assert result.allowed_bytes == allowed
    assert abs(Budget.of(1_000, allowed).budget_bytes - allowed) <= 1


def test_a_peak_within_the_tolerance_fits_even_over_the_budget() -> None:
    strict = Budget(limit_bytes=1_000, headroom=0.05)
    for batch, verdict in ((172, CheckVerdict.FITS), (178, CheckVerdict.DOES_NOT_FIT)):
        candidate = Candidate(batch_size=batch)
        result = unrun_check(budget=strict, candidate=candidate, expected_peak_bytes=930)
        device = ScriptedDevice({}, headroom=Budget.of(1_000, result.allowed_bytes).headroom)
        result = run_trials(result, trials_of(candidate, None), device, SilentObserver())[0]
        assert result.verdict is verdict
        assert ("headroom" in dict(check_rows(result))) == (verdict is CheckVerdict.FITS)
        said = result.problem.message if result.problem else ""
        assert ("over the 976 B that noise explains" in said) == (verdict is CheckVerdict.DOES_NOT_FIT)


def test_buckets_must_fail_twice_too_and_do_not_change_the_figures_of_the_configuration() -> None:
    assert checked(ScriptedDevice({2: OOM}), BUCKETED).verdict is CheckVerdict.FITS
    device = ScriptedDevice({2: OOM, 3: OOM})
    result = checked(device, BUCKETED, expected_peak_bytes=600)
    assert [isinstance(trial, BucketTurns) for trial in device.ran] == [False, True, True]
    assert result.verdict is CheckVerdict.DOES_NOT_FIT
    assert (result.growth, result.deciding) == (0.0, OOM)
    assert "alternating buckets" in check_message(result).sentence
    assert check_document(result)["outcome"] == "device_oom"


def updated(device: FakeDevice, tuned: TunedConfig | None = None) -> tuple[CheckResult, list[ProbeResult]]:
    written: list[ProbeResult] = []

    def write(found: ProbeResult) -> ProbeResult:
        written.append(found)
        return dataclasses.replace(found, tuned_path="m.tuned.yaml")

    result = unrun_check()
    seen, ran = run_trials(result, trials_of(result.candidate, tuned), device, SilentObserver())
    return update(seen, ran, SPEC, device, SilentObserver(), write), written


def test_an_update_that_finds_an_answer_reports_no_problem() -> None:
    result, (found,) = updated(ScriptedDevice({}, per_sample=10))
    assert (result.verdict, result.exit_code) == (CheckVerdict.UPDATED, 0)
    assert found.best is not None
    assert result.candidate == Candidate(batch_size=90) == found.best.candidate
    document = check_document(result)
    assert (document["verdict"], document["error"], document["hint"]) == ("updated", None, "")
    assert document["best"] == document["updated"]["best"]
    assert document["updated"]["before"]["batch_size"] == 100
    assert document["memory"]["peak_bytes"] == 1_000
    assert (check_report(result).problem_kind, check_report(result).problem) == (None, "")


def test_an_update_that_finds_nothing_does_not_suggest_another_update() -> None:
    result, written = updated(ScriptedDevice({}, per_sample=2_000))
    assert (result.exit_code, written) == (4, [])
    assert "nothing fits any more" in check_message(result).sentence
    assert "--update" not in check_message(result).hint
    assert "not even batch 1" in check_document(result)["error"]["message"]


@pytest.mark.parametrize("first", [1, 3])
def test_a_crash_before_or_during_an_update_means_a_broken_model_and_writes_nothing(first: int) -> None:
    result, written = updated(ScriptedDevice({1: OOM, 2: OOM} | {first: CRASH}))
    assert (result.exit_code, written) == (6, [])
    assert ("the new search failed" in check_message(result).sentence) == (first == 3)
    assert "--update" not in check_message(result).hint
    assert check_document(result)["error"]["message"] == "ValueError: no"


def test_an_interrupted_update_writes_nothing() -> None:
    with pytest.raises(KeyboardInterrupt):
        updated(ScriptedDevice({1: OOM, 2: OOM, 4: KeyboardInterrupt}))


def test_failed_buckets_do_not_count_against_the_configuration_in_an_update() -> None:
    result, (found,) = updated(ScriptedDevice({2: OOM, 3: OOM}), BUCKETED)
    assert result.verdict is CheckVerdict.UPDATED
    assert found.best is not None
    assert found.best.candidate.batch_size == 180
    kinds = {record.outcome.kind for record in found.records if record.trial.candidate.batch_size == 100}
    assert kinds == {Kind.FITS}


def changed(tuned: TunedConfig, environment: dict[str, str], values: dict[str, Any] | None = None) -> dict[str, Change]:
    here = Place(
        resolved=Resolved(device=Device(kind="cpu", name="a CPU"), budget=Budget(limit_bytes=BEYOND_ANY_MACHINE))
    )
    result = unrun_check(budget=here.resolved.budget)
    found = changes_since(tuned, Document(values=values or {}, origin="m"), result, here, environment)
    return {change.what: change for change in found}


def test_changes_include_variables_that_differ_from_those_of_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    then = {"TF_ENABLE_ONEDNN_OPTS": "0"}
    tuned = tuned_on(needs_environment=then, versions=versions())
    assert changed(tuned, then) == {}
    needed = changed(tuned, {**then, "ONEDNN_MAX_CPU_ISA": "AVX2"})
    assert str(needed["ONEDNN_MAX_CPU_ISA"]) == "ONEDNN_MAX_CPU_ISA: not set then, AVX2 now"
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    assert "1, though the check ran with 0" in changed(tuned, then)["TF_ENABLE_ONEDNN_OPTS"].now


def test_changes_include_edits_of_the_tuned_config() -> None:
    tuned = tuned_on(spec_sha256=digest_of({"name": "a"}))
    assert changed(tuned, {}, {"name": "a", "tuned": {}}) == {}
    assert set(changed(tuned, {}, {"name": "b", "tuned": {}})) == {"the spec in this file"}


@pytest.mark.parametrize("given", ["5%", "0.05", 0.05])
def test_a_tolerance_is_a_share_or_a_percentage(given: Any) -> None:
    assert CheckOptions(tolerance=given).allowed_growth == pytest.approx(0.05)


@pytest.mark.parametrize(
    "overrides",
    [
        {"tolerance": -1}, {"tolerance": 5}, {"tolerance": "nan"}, {"tolerance": "5 apples"}, {"against": "T4", "update": True},
        {"against": "T4", "device": "cpu"}, {"against": "T4", "memory_limit": 5},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(overrides: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem):
        CheckOptions(**overrides)


def test_updating_a_plain_spec_is_refused_with_a_hint_to_probe_it(tmp_path: Path) -> None:
    spec = tmp_path / "model.yaml"
    spec.write_text(yaml.safe_dump(small_spec(search__batch_size=4)))
    with pytest.raises(UsageProblem) as raised:
        read_subject(spec, CheckOptions(update=True))
    assert "oomtune probe" in raised.value.hint
    assert read_subject(spec, CheckOptions()).tuned is None


@pytest.mark.parametrize(("peak", "said"), [(None, "no peak_bytes, so growth is not checked"), (900, "900 B")])
def test_growth_is_not_checked_if_the_evidence_has_no_peak(tmp_path: Path, peak: int | None, said: str) -> None:
    path = write_spec_and_tuned(tmp_path)
    values = yaml.safe_load(path.read_text())
    values["tuned"]["evidence"] |= {} if peak is None else {"peak_bytes": peak}
    path.write_text(yaml.safe_dump(values))
    subject = read_subject(path, CheckOptions())
    here = Place(resolved=Resolved(device=CPU, budget=Budget(limit_bytes=1_000)))
    result = result_before_run(subject, subject.loaded, here, CheckOptions())
    assert said in dict(check_rows(result))["when it was tuned"]
