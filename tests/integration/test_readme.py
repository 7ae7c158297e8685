"""The README's commands, spec and script are run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.cli import ROOT, Cli

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line.partition("#")[0].split() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def probed(folder: Path, spec: str) -> Cli:
    """A folder with a spec in it, probed by the README's first command."""
    cli = Cli(folder)
    (cli.folder / "model.yaml").write_text(spec)
    assert cli("probe", "model.yaml").code == 0
    return cli


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return probed(tmp_path_factory.mktemp("readme"), blocks("yaml")[0])


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """The README's spec with a smaller end of the search, so that each command is a matter of seconds."""
    spec = blocks("yaml")[0]
    assert "max: 1024" in spec
    cli = probed(tmp_path_factory.mktemp("commands"), spec.replace("max: 1024", "max: 32"))
    (cli.folder / "train.log").write_text(
        "ResourceExhaustedError: OOM when allocating tensor with shape[64,512] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n"
    )
    return cli


def test_the_spec_is_ten_lines_and_the_answer_has_the_keys_that_are_shown(shown: Cli) -> None:
    assert len(blocks("yaml")[0].splitlines()) <= 12
    claimed = yaml.safe_load(blocks("yaml")[1])["tuned"]
    written = yaml.safe_load((shown.folder / "model.tuned.yaml").read_text())["tuned"]
    assert set(claimed) <= set(written)
    assert set(claimed["evidence"]) <= set(written["evidence"])
    assert written["sequence_length"] in (64, 128)
    tokens = [each["batch_size"] * each["sequence_length"] for each in (claimed, written)]
    assert tokens[1] == pytest.approx(tokens[0], rel=0.25)  # another processor has other kernels


def test_the_script_trains(shown: Cli) -> None:
    script = blocks("python")[0]
    (shown.folder / "train.py").write_text(script)
    ran = subprocess.run([sys.executable, "train.py"], cwd=shown.folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Epoch 2/2" in ran.stdout


# The script's command is run, with a coarser edge, where the configs are tested.
RUN_HERE = [words for words in commands() if words[0] == "oomtune" and "--script" not in words]


@pytest.mark.parametrize("words", RUN_HERE, ids=" ".join)
def test_each_oomtune_command_ends_well(quick: Cli, words: list[str]) -> None:
    ran = quick(*words[1:])
    assert ran.code == (7 if "--max-trials" in words else 0), ran.err


@pytest.mark.parametrize("words", [words for words in commands() if words[0] == "make"], ids=" ".join)
def test_each_make_target_exists(words: list[str]) -> None:
    assert shutil.which("make")
    ran = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_defaults_it_states_are_the_defaults() -> None:
    from oomtune.spec import load_spec
    from tests.support.specs import small_spec

    stated = yaml.safe_load(blocks("yaml")[3])
    bare = {key: small_spec()[key] for key in ("model", "dataset")}
    with_loss = {**bare, "training": {"loss": "mse"}}
    spelled_out = {**bare, **stated, "training": {**stated["training"], "loss": "mse"}}
    assert load_spec(spelled_out).spec == load_spec(with_loss).spec


def test_each_kind_of_data_it_shows_is_accepted_as_it_is_written() -> None:
    for kind, section in yaml.safe_load(blocks("yaml")[2]).items():
        assert all("no such" in message for message in problems_with(kind, section)), kind


def test_the_snippets_for_pipelines_name_what_there_is_in_five_lines_at_most() -> None:
    texts = [block for block in blocks("yaml") if "OWNER/oomtune" in block]
    assert all(len(text.splitlines()) <= 5 for text in texts)
    (step,), (hooks,) = map(yaml.safe_load, texts)
    action = yaml.safe_load((ROOT / step["uses"].partition("@")[0].partition("oomtune/")[2] / "action.yml").read_text())
    assert set(step["with"]) <= set(action["inputs"])
    (hook,) = hooks["hooks"]
    assert hook["id"] == yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())[0]["id"]
    assert re.search(hook["files"], "configs/lstm.yaml")


def problems_with(kind: str, section: object) -> list[str]:
    from oomtune.errors import SpecProblem
    from oomtune.spec import load_spec
    from tests.support.specs import small_spec

    try:
        load_spec(small_spec(dataset={kind: section}))
    except SpecProblem as error:
        return [problem.message for problem in error.problems]
    return []


def test_the_figures_beside_other_searches_are_those_of_the_benchmark() -> None:
    measured = (ROOT / "tests/benchmarks/results.md").read_text()
    assert "oomtune" in measured
    assert measured in README


def test_it_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) < 360
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_top_level_holds_only_what_it_should() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {Path(line).parts[0] for line in listed.splitlines()}
    visible = {name for name in top if not name.startswith(".")}
    assert visible == {"LICENSE", "Makefile", "README.md", "configs", "oomtune", "pyproject.toml", "tests"}
    assert top - visible == {".ci", ".github", ".gitignore", ".pre-commit-hooks.yaml"}
