"""The CI templates that users copy: run their scripts and check what they pass on."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import ROOT, Cli
from tests.support.specs import small_spec


def read(*parts: str) -> Any:
    return yaml.safe_load(ROOT.joinpath(*parts).read_text())


@dataclasses.dataclass(frozen=True)
class StandIn:
    """A shell that runs a template's script with a stand-in for `oomtune`."""

    folder: Path

    def run(self, script: str, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        program = self.folder / "oomtune"
        program.write_text(f"#!{sys.executable}\nimport json, sys\n{code}\n")
        program.chmod(0o755)
        path = f"{self.folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-e", "-c", script], cwd=self.folder, env={**environment, "PATH": path}, check=False,
            capture_output=True, text=True,
        )  # fmt: skip


ACTION = read(".github", "actions", "check", "action.yml")


def run_action(folder: Path, code: str, **inputs: str) -> tuple[int, dict[str, str]]:
    """Run the action with the defaults of its inputs; return its exit code and its outputs."""
    step = ACTION["runs"]["steps"][-1]
    names = {word: value.split("inputs.")[1].rstrip(" }") for word, value in step["env"].items()}
    given = {word: inputs.get(name, ACTION["inputs"][name].get("default", "")) for word, name in names.items()}
    ran = StandIn(folder).run(step["run"], code, **given, GITHUB_OUTPUT="out.txt", RUNNER_TEMP=str(folder))
    return ran.returncode, dict(line.split("=", 1) for line in (folder / "out.txt").read_text().splitlines())


def test_the_action_runs_a_check_and_passes_on_its_verdict(tmp_path: Path) -> None:
    config = "a b$(touch never).yaml"
    mine = tmp_path / "oomtune-check.json"
    mine.write_text("mine")
    code, outputs = run_action(
        tmp_path,
        "print(json.dumps({'verdict': 'uses_more', 'arguments': sys.argv[1:]})); sys.exit(4)",
        **{"config": config, "against": "T4", "tolerance": "10%", "junit": "j.xml", "allow-device-change": "true"},
    )
    assert (code, outputs["verdict"], outputs["exit-code"]) == (4, "uses_more", "4")
    assert set(outputs) == set(ACTION["outputs"])
    arguments = json.loads(Path(outputs["document"]).read_text())["arguments"]
    assert arguments == [
        "check", config, "--tolerance", "10%", "--json", "--junit", "j.xml", "--against", "T4", "--allow-device-change",
    ]  # fmt: skip
    assert not (tmp_path / "never").exists()
    assert mine.read_text() == "mine"


def test_the_action_keeps_the_exit_code_of_a_check_that_prints_nothing(tmp_path: Path) -> None:
    code, outputs = run_action(tmp_path, "sys.exit(5)", config="m.yaml")
    assert (code, outputs["verdict"]) == (5, "failed")


@pytest.mark.parametrize(
    ("set_to", "checked"), [({}, "model.tuned.yaml"), ({"OOMTUNE_CONFIG": "a b.yaml"}, "a b.yaml")]
)
def test_the_gitlab_job_checks_the_config_that_the_including_file_names(
    tmp_path: Path, set_to: dict[str, str], checked: str
) -> None:
    job = read("configs", "pipelines", "gitlab.yml")["oomtune-check"]
    assert "variables" not in job  # they would override those of the including file
    ran = StandIn(tmp_path).run(job["script"][0], "print(sys.argv[2])", **set_to)
    assert ran.stdout.strip() == checked


def test_the_gitlab_job_passes_extra_arguments_word_by_word(tmp_path: Path) -> None:
    script = read("configs", "pipelines", "gitlab.yml")["oomtune-check"]["script"][0]
    ran = StandIn(tmp_path).run(script, "print(sys.argv[-4:])", OOMTUNE_CHECK_ARGS="--against T4 --tolerance 10%")
    assert ran.stdout.strip() == "['--against', 'T4', '--tolerance', '10%']"
    bare = StandIn(tmp_path).run(script, "print(sys.argv[-1])")
    assert bare.stdout.strip() == "oomtune-quality.json"


def kubernetes_container() -> dict[str, Any]:
    job = read("configs", "pipelines", "kubernetes-job.yaml")
    container: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize(("code", "writes"), [(0, True), (7, True), (3, False)])
def test_the_kubernetes_job_ends_with_the_tuned_config_and_the_exit_code_of_the_probe(
    tmp_path: Path, code: int, writes: bool
) -> None:
    install, _, script = kubernetes_container()["args"][0].partition("\n")
    assert install.startswith("python -m pip install")
    probe = f"print('the answer'); open(sys.argv[-1], 'w').write('tuned: yes') if {writes} else None; sys.exit({code})"
    ran = StandIn(tmp_path).run(script, probe, TMPDIR=str(tmp_path))
    assert (ran.returncode, ran.stderr) == (code, "")
    assert ran.stdout == "the answer\n" + "tuned: yes" * writes


def test_the_hook_checks_files_with_spec_names_and_fails_for_an_invalid_one(tmp_path: Path) -> None:
    (hook,) = read(".pre-commit-hooks.yaml")
    for name, taken in (
        ("net.oomtune.yaml", True), ("configs/net.tuned.yaml", True), ("oomtune.yml", True), ("a/oomtune-net.yaml", True),
        ("model.yaml", False), ("configs/train.yaml", False), ("oomtune/files.py", False),
    ):  # fmt: skip
        assert bool(re.search(hook["files"], name)) == taken, name
    good, bad = tmp_path / "good.oomtune.yaml", tmp_path / "bad.oomtune.yaml"
    good.write_text(yaml.safe_dump(small_spec()))
    bad.write_text(yaml.safe_dump(small_spec(serach={})))
    program, *words = hook["entry"].split()
    assert program == "oomtune"
    cli = Cli(tmp_path)
    assert cli(*words, good).code == 0
    worse = tmp_path / "worse.oomtune.yaml"
    worse.write_text(bad.read_text())
    ran = cli(*words, good, bad, worse)
    assert ran.code == 2
    assert [ran.err.count(f"{name}:") for name in (good, bad, worse)] == [0, 1, 1]
    assert "2 problems in total" in ran.err


def _probe_of(script: str) -> str:
    (line,) = [line for line in script.splitlines() if line.startswith("oomtune ")]
    return line.partition(" || ")[0]


def test_the_templates_use_flags_that_exist() -> None:
    from typer.testing import CliRunner

    from oomtune.cli.app import app

    help_texts = {
        command: CliRunner().invoke(app, [command, "--help"]).output for command in ("check", "probe", "schema")
    }
    gitlab = read("configs", "pipelines", "gitlab.yml")["oomtune-check"]
    container = kubernetes_container()
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    (hook,) = read(".pre-commit-hooks.yaml")
    for line in (gitlab["script"][0], _probe_of(container["args"][0]), hook["entry"]):
        program, command, *words = line.split()
        assert program == "oomtune"
        assert all(word in help_texts[command] for word in words if word.startswith("-"))
    reports = gitlab["artifacts"]["reports"]
    assert all(file in gitlab["script"][0] for file in reports.values())
