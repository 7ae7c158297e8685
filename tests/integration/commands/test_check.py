"""`oomtune check` as a pipeline runs it: every verdict with its exit code."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.cli import Cli
from tests.support.specs import small_spec

BUILDER = """
import os
import keras

def build():
    assert os.environ.get("MY_SETTING") != "of this shell"
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(1)])
"""


@dataclasses.dataclass(frozen=True)
class Checked:
    cli: Cli
    tuned: Path

    def change(self, change: Callable[[dict[str, Any]], None], name: str = "changed.tuned.yaml") -> Path:
        """Write a changed copy of the tuned config."""
        values = yaml.safe_load(self.tuned.read_text())
        change(values)
        path = self.tuned.with_name(name)
        path.write_text(yaml.safe_dump(values, sort_keys=False))
        return path


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    folder = tmp_path_factory.mktemp("check")
    (folder / "mine.py").write_text(BUILDER)
    values = small_spec(model={"builder": "mine:build"}, search__batch_size={"min": 1, "max": 2048})
    (folder / "model.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    cli = Cli(folder)
    ran = cli("probe", folder / "model.yaml", "-q", "--memory-limit", "12MiB", "--set", "search.resolution=0.04")
    assert ran.code == 0, ran.err
    return Checked(cli, folder / "model.tuned.yaml")


def test_a_tuned_config_still_fits_and_every_output_says_so(checked: Checked) -> None:
    folder = checked.cli.folder
    ran = checked.cli(
        "check", checked.tuned, "--tolerance", "20%", "--json", "--junit", folder / "j.xml",
        env={"GITHUB_STEP_SUMMARY": str(folder / "s.md"), "GITHUB_ACTIONS": "true"},
    )  # fmt: skip
    assert ran.code == 0, ran.err
    document = ran.document
    assert (document["command"], document["verdict"]) == ("check", "fits")
    assert abs(document["memory"]["growth"]) < 0.2
    assert document["changes"] == []
    assert document["spec_diff"] == []
    suite = ElementTree.fromstring((folder / "j.xml").read_text())
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")
    assert "still fits" in (folder / "s.md").read_text()
    assert "::error" not in ran.err


def test_more_memory_than_before_exits_4_and_lists_the_changes(checked: Checked) -> None:
    def change(values: dict[str, Any]) -> None:
        evidence = values["tuned"]["evidence"]
        values["tuned"]["batch_size"] //= 2  # so that it fits whatever the noise
        evidence["peak_bytes"] //= 4
        evidence |= {"keras": "3.0.0", "parameters": 7, "spec": "changed.yaml"}
        evidence["needs_environment"] |= {"MY_SETTING": "when tuned"}

    path = checked.change(change)
    (checked.cli.folder / "changed.yaml").write_text((checked.cli.folder / "model.yaml").read_text() + "name: other\n")
    quality = checked.cli.folder / "quality.json"
    settings = {"GITHUB_ACTIONS": "true", "MY_SETTING": "of this shell"}
    ran = checked.cli("check", path, "--code-quality", quality, env=settings)
    assert ran.code == 4, ran.err
    assert "more memory than before" in ran.out
    assert "keras: 3.0.0 then, " in ran.out
    assert "parameters: 7 then, 33793 now" in ran.out
    assert "MY_SETTING: when tuned then, of this shell, though the check ran with when tuned" in ran.out
    assert "+name: other" in ran.out
    assert "resolution" not in ran.out
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if text.startswith("  batch_size: "))
    (issue,) = json.loads(quality.read_text())
    assert issue["location"]["lines"]["begin"] >= line
    assert f"::error file={path},line={issue['location']['lines']['begin']}," in ran.err
    allowed = checked.cli("check", path, "--tolerance", "300%", "-q")
    assert allowed.code == 0, allowed.err


def test_a_model_that_grew_does_not_fit_until_an_update_finds_what_does(checked: Checked) -> None:
    (checked.cli.folder / "larger.py").write_text(BUILDER.replace("512", "1024"))
    path = checked.change(lambda values: values["model"].update(builder="larger:build"))
    before = yaml.safe_load(path.read_text())["tuned"]
    ran = checked.cli("check", path, "--json")
    assert (ran.code, ran.document["verdict"]) == (4, "does_not_fit"), ran.err
    assert ran.document["error"]["message"]
    assert "--update" in ran.document["hint"]
    assert {change["what"]: change["now"] for change in ran.document["changes"]}["parameters"] == "67585"
    assert "the spec in this file" in [change["what"] for change in ran.document["changes"]]
    assert yaml.safe_load(path.read_text())["tuned"] == before
    (checked.cli.folder / "model.yaml").rename(checked.cli.folder / "moved.yaml")
    (checked.cli.folder / "model.yaml").write_text("model: [")
    updated = checked.cli("check", path, "--update", "--json", "--set", "trial.steps=2")
    (checked.cli.folder / "moved.yaml").rename(checked.cli.folder / "model.yaml")
    assert updated.code == 0, updated.err
    assert (updated.document["verdict"], updated.document["error"], updated.document["hint"]) == ("updated", None, "")
    assert "model.yaml:1" in updated.document["notices"][0]
    after = yaml.safe_load(path.read_text())["tuned"]
    assert yaml.safe_load(path.read_text())["trial"]["steps"] == 2
    assert after["evidence"]["needs_environment"] == before["evidence"]["needs_environment"]
    assert after["evidence"]["overridden"] == [*before["evidence"]["overridden"], "trial.steps"]
    assert after["batch_size"] == updated.document["updated"]["best"]["batch_size"] < before["batch_size"]
    assert after["evidence"]["confirmed"] is True
    assert updated.document["updated"]["trials"] <= 8


def test_an_update_searches_the_edited_spec(checked: Checked) -> None:
    source, path = checked.cli.folder / "edited.yaml", checked.cli.folder / "edited.tuned.yaml"
    source.write_text((checked.cli.folder / "model.yaml").read_text())
    values = yaml.safe_load(checked.tuned.read_text())
    values["tuned"]["evidence"]["spec"] = "edited.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    source.write_text(source.read_text().replace("max: 2048", "max: 32"))
    ran = checked.cli("check", path, "--tolerance", "20%", "-q")
    assert ran.code == 0, ran.err
    assert "with its spec as it was before the edit" in ran.out
    updated = checked.cli("check", path, "--update", "--json")
    assert updated.code == 0, updated.err
    after = yaml.safe_load(path.read_text())
    assert after["search"]["batch_size"]["max"] == 32 == after["tuned"]["batch_size"]
    assert after["device"]["memory_limit"] == values["device"]["memory_limit"]  # a flag of the probe
    again = checked.cli("check", path, "--tolerance", "20%", "--json")
    assert (again.code, again.document["spec_diff"], again.document["changes"]) == (0, [], [])


def test_another_device_exits_5_unless_it_is_allowed(checked: Checked) -> None:
    def change(values: dict[str, Any]) -> None:
        values["device"] = {"kind": "gpu"}
        card = {"kind": "gpu", "name": "Tesla T4", "memory_limit_bytes": 2**59}
        values["tuned"]["evidence"]["device"] |= card

    path, junit = checked.change(change), checked.cli.folder / "device.xml"
    ran = checked.cli("check", path, "--junit", junit, env={"GITHUB_ACTIONS": "true"})
    assert ran.code == 5, ran.err
    assert "GPU Tesla T4 then, CPU" in ran.out
    assert "--allow-device-change" in ran.out
    assert "trial 1" not in ran.err
    assert "::error file=" in ran.err
    assert ElementTree.fromstring(junit.read_text()).get("errors") == "1"
    allowed = checked.cli("check", path, "--allow-device-change", "--json")
    assert allowed.code == 0, allowed.err
    assert allowed.document["memory"]["expected_peak_bytes"] is None


def test_a_check_against_a_card_reports_how_sure_it_is(checked: Checked) -> None:
    theirs = {"OOMTUNE_DEVICE": "gpu", "OOMTUNE_MEMORY_LIMIT": "1GiB", "OOMTUNE_LIKE": "A100"}
    ran = checked.cli("check", checked.tuned, "--against", "T4", "--json", env=theirs)
    assert ran.code == 0, ran.err
    assert ran.document["device"]["stands_in_for"] == "Tesla T4"
    assert ran.document["certainty"].startswith("sure")


def test_errors_reach_the_pipeline_files_too(checked: Checked) -> None:
    junit, summary = checked.cli.folder / "none.xml", checked.cli.folder / "none.md"
    missing = checked.cli.folder / "missing.tuned.yaml"
    ran = checked.cli(
        "check", missing, "--junit", junit, "--summary", summary, "--json", env={"GITHUB_ACTIONS": "true"}
    )
    assert (ran.code, ran.document["error"]["code"]) == (2, "spec")
    assert ElementTree.fromstring(junit.read_text()).get("errors") == "1"
    assert "no such file" in summary.read_text()
    assert "::error file=" in ran.err


def test_a_plain_spec_is_checked_at_its_fixed_values(checked: Checked) -> None:
    spec = checked.cli.folder / "model.yaml"
    loose = checked.cli("check", spec)
    assert loose.code == 2
    assert "search.batch_size has 2048 values" in loose.err
    large = checked.cli("check", spec, "--set", "search.batch_size=100000", "-q")
    assert large.code == 4
    assert "does not fit" in large.out
    fixed = checked.cli("check", spec, "--set", "search.batch_size=16", "-q")
    assert fixed.code == 0, fixed.err


def test_a_broken_model_exits_6_with_its_own_error(checked: Checked) -> None:
    (checked.cli.folder / "broken.py").write_text("def build():\n    raise RuntimeError('my model is broken')\n")
    path = checked.change(lambda values: values["model"].update(builder="broken:build"))
    ran = checked.cli("check", path, "--json", env={"GITHUB_ACTIONS": "true"})
    assert (ran.code, ran.document["verdict"]) == (6, "broken")
    assert "my model is broken" in ran.document["error"]["message"]
    assert f"::error file={path},line={path.read_text().splitlines().index('model:') + 1}," in ran.err
    layers = [{"Input": {"shape": [64]}}, {"Dense": {"units": 1, "activation": "none"}}]
    path = checked.change(lambda values: values.update(model={"layers": layers}))
    ran = checked.cli("check", path, "--json", env={"GITHUB_ACTIONS": "true"})
    line = path.read_text().splitlines().index("  - Dense:") + 1
    assert (ran.code, ran.document["error"]["where"]) == (6, f"{path}:{line}")
    assert f"::error file={path},line={line}," in ran.err
    assert f"oomtune: {path}:{line}: model.layers[1] (Dense)" in ran.err
    before = checked.tuned.read_bytes()
    kept = checked.cli("check", checked.tuned, "--junit", checked.tuned)
    assert kept.code == 2
    assert checked.tuned.read_bytes() == before


def test_an_interrupted_update_leaves_the_file_unchanged(checked: Checked) -> None:
    (checked.cli.folder / "twice.py").write_text(BUILDER.replace("512", "1024"))
    path = checked.change(lambda values: values["model"].update(builder="twice:build"))
    before = path.read_bytes()
    process = checked.cli.start("check", path, "--update")
    assert process.stderr is not None
    # The check itself is two trials, since it does not fit.
    next(line for line in process.stderr if line.startswith("trial 3"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert path.read_bytes() == before
