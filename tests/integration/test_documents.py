"""The README and the guide show only what works: their commands, specs and scripts are run as they stand."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from oomtune.cli.app import app
from oomtune.cli.guide import PAGES, TOPICS
from tests.support.cli import ROOT, Cli
from tests.support.specs import small_spec

README = ROOT / "README.md"
DOCUMENTS = [README, *(PAGES / f"{topic}.md" for topic in TOPICS)]
FOR_DEVELOPERS = [ROOT / ".github/CONTRIBUTING.md", ROOT / ".github/CHANGELOG.md"]
# They look like a name in the module `oomtune`.
FILE_NAMES = {("oomtune", "xml"), ("oomtune", "yaml")}
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(), flags=re.DOTALL)


def every_block(language: str) -> list[Any]:
    found = [(document, block) for document in DOCUMENTS for block in blocks(document, language)]
    return [pytest.param(block, id=f"{document.stem}-{number}") for number, (document, block) in enumerate(found)]


def shell_lines(documents: Sequence[Path] = DOCUMENTS) -> list[list[str]]:
    """Return every command of the documents once, in the order of the pages."""
    text = "".join(block for document in documents for block in blocks(document, "sh"))
    lines = [line.partition("#")[0].partition(" > ")[0].split() for line in text.splitlines()]
    return [list(line) for line in dict.fromkeys(map(tuple, lines)) if line]


def lines_of(program: str, documents: Sequence[Path] = DOCUMENTS) -> list[list[str]]:
    return [words for words in shell_lines(documents) if words[0] == program]


def inline_code(document: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL))


def probed(folder: Path, spec: str) -> Cli:
    """A folder with a spec in it, probed by the README's first command."""
    cli = Cli(folder)
    (cli.folder / "model.yaml").write_text(spec)
    assert cli("probe", "model.yaml").code == 0
    return cli


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return probed(tmp_path_factory.mktemp("readme"), blocks(README, "yaml")[0])


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """The README's spec with a smaller end of the search, so that each command takes only seconds."""
    spec = blocks(README, "yaml")[0]
    assert "max: 1024" in spec
    cli = probed(tmp_path_factory.mktemp("commands"), spec.replace("max: 1024", "max: 32"))
    (cli.folder / "train.log").write_text(
        "ResourceExhaustedError: OOM when allocating tensor with shape[64,512] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n"
    )
    return cli


def test_the_readme_fits_on_two_screens_and_its_spec_in_twelve_lines() -> None:
    assert len(README.read_text().splitlines()) <= 160
    assert len(blocks(README, "yaml")[0].splitlines()) <= 12


def test_the_answer_that_the_readme_shows_is_the_answer(shown: Cli) -> None:
    claimed = yaml.safe_load(blocks(README, "yaml")[1])["tuned"]
    written = yaml.safe_load((shown.folder / "model.tuned.yaml").read_text())["tuned"]
    assert set(claimed) <= set(written)
    assert set(claimed["evidence"]) <= set(written["evidence"])
    assert written["sequence_length"] in (64, 128)
    tokens = [each["batch_size"] * each["sequence_length"] for each in (claimed, written)]
    assert tokens[1] == pytest.approx(tokens[0], rel=0.25)  # another processor has other kernels


def test_the_readmes_script_trains(shown: Cli) -> None:
    (shown.folder / "train.py").write_text(blocks(README, "python")[0])
    ran = subprocess.run([sys.executable, "train.py"], cwd=shown.folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Epoch 2/2" in ran.stdout


@pytest.mark.parametrize("script", every_block("python")[1:])
def test_each_script_of_the_guide_runs_if_it_is_whole(shown: Cli, script: str) -> None:
    if script.startswith("import "):
        subprocess.run([sys.executable, "-c", script], cwd=shown.folder, capture_output=True, check=True)
    else:
        compile(script, "guide", "exec")  # a line to copy into such a script


# The script's command is run, with a coarser edge, where the configs are tested.
RUN_HERE = [words for words in lines_of("oomtune") if "--script" not in words]


@pytest.mark.parametrize("words", RUN_HERE, ids=" ".join)
def test_each_oomtune_command_ends_well(quick: Cli, words: list[str]) -> None:
    ran = quick(*words[1:])
    assert ran.code == (7 if "--max-trials" in words else 0), ran.err


@pytest.mark.parametrize("words", lines_of("make", DOCUMENTS + FOR_DEVELOPERS), ids=" ".join)
def test_each_make_target_exists(words: list[str]) -> None:
    assert shutil.which("make")
    ran = subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_what_pip_installs_is_this_package_and_its_extras() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for words in lines_of("pip"):
        name, extra = re.fullmatch(r"'?(\w+)(?:\[(\w+)\])?'?", words[2]).groups()  # type: ignore[union-attr]
        assert f'name = "{name}"' in project
        assert extra is None or f"\n{extra} = [" in project


def test_all_shell_commands_are_of_kinds_that_are_tested_here() -> None:
    assert {words[0] for words in shell_lines()} == {"oomtune", "make", "pip"}


@pytest.mark.parametrize("document", DOCUMENTS + FOR_DEVELOPERS, ids=lambda path: path.stem)
def test_every_command_flag_and_name_exists(document: Path) -> None:
    lines = [line for block in blocks(document, "sh") for line in block.splitlines()]
    for code in (*inline_code(document), *lines):
        words = code.partition("#")[0].replace("…", "").split()
        check_command(words) if words[:1] == ["oomtune"] else check_flags(words, list(COMMANDS))
    names = re.findall(r"`[^`\n]*?\b(oomtune(?:\.keras)?)\.([a-z]\w*)\b", document.read_text())
    code = "".join(blocks(document, "python"))
    for module, name in {*names, *re.findall(r"\b(oomtune(?:\.keras)?)\.([a-z]\w*)\b", code)} - FILE_NAMES:
        is_package = (ROOT / module.replace(".", "/") / name).is_dir()
        assert is_package or hasattr(importlib.import_module(module), name), f"{module}.{name}"


def check_command(words: list[str]) -> None:
    if len(words) > 1 and not words[1].startswith("-"):
        assert words[1] in COMMANDS, words
        check_flags(words, [words[1]])


def check_flags(words: list[str], commands: list[str]) -> None:
    """Each `--flag` up to `--` belongs to one of the commands; only code that begins with a flag or `oomtune` is ours."""
    if not words or not words[0].startswith(("--", "oomtune")):
        return
    known = {flag for command in commands for each in COMMANDS[command].params for flag in (*each.opts, "--help")}
    ours = words[: words.index("--")] if "--" in words else words
    for word in ours:
        assert not word.startswith("--") or word.partition("=")[0] in known | {"--batch-size"}, word


def test_the_readme_lists_every_command() -> None:
    listed = re.findall(r"^\| `oomtune (\w+)", README.read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def problems_with(section: dict[str, Any]) -> list[str]:
    """What is wrong with a section of a spec, except that its files are not here."""
    from oomtune.errors import SpecProblem
    from oomtune.spec import load_spec

    trains_itself = {"train_step", "script"} & section.get("model", {}).keys()
    rest = {} if trains_itself else small_spec()
    try:
        load_spec({**rest, **section})
    except SpecProblem as error:
        return [problem.message for problem in error.problems if "no such" not in problem.message]
    return []


def check_workflow(workflow: dict[Any, Any]) -> None:
    for step in workflow["jobs"]["memory"]["steps"]:
        if "run" in step and step["run"].startswith("oomtune"):
            check_command(step["run"].split())


def check_action(steps: list[dict[str, Any]]) -> None:
    action = yaml.safe_load((ROOT / steps[0]["uses"].removeprefix("./oomtune/") / "action.yml").read_text())
    assert set(steps[0]["with"]) <= set(action["inputs"])


def check_hooks(repositories: list[dict[str, Any]]) -> None:
    (shipped,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (hook,) = repositories[0]["hooks"]
    assert (hook["id"], hook["entry"]) == (shipped["id"], shipped["entry"])
    assert re.search(hook["files"], "configs/lstm.yaml")


def check_pipeline(pipeline: dict[str, Any]) -> None:
    file = (ROOT / "configs/pipelines" / pipeline["include"]["local"]).read_text()
    assert all(name in file for name in pipeline["variables"])


def check_spec(spec: dict[str, Any]) -> None:
    assert problems_with(spec) == []


def check_data(kinds: dict[str, Any]) -> None:
    for kind, section in kinds.items():
        assert problems_with({"dataset": {kind: section}}) == [], kind


def check_answer(_answer: dict[str, Any]) -> None:
    """Held against a real one above."""


# What a block of YAML is, by a key that only such a block has.
CHECKS: dict[str, Callable[[Any], None]] = {
    "tuned": check_answer, "model": check_spec, "dataset": check_spec, "search": check_spec, "synthetic": check_data,
    "jobs": check_workflow, "uses": check_action, "repo": check_hooks, "include": check_pipeline,
}  # fmt: skip


@pytest.mark.parametrize("text", every_block("yaml"))
def test_each_block_of_yaml_is_accepted_by_what_reads_it(text: str) -> None:
    block = yaml.safe_load(text)
    keys = block[0] if isinstance(block, list) else block
    check = next(check for key, check in CHECKS.items() if key in keys)
    check(block)


def test_the_defaults_that_the_guide_states_are_the_defaults() -> None:
    from oomtune.spec import load_spec

    stated = yaml.safe_load(blocks(PAGES / "spec.md", "yaml")[0])
    bare = {key: small_spec()[key] for key in ("model", "dataset")}
    with_loss = {**bare, "training": {"loss": "mse"}}
    spelled_out = {**bare, **stated, "training": {**stated["training"], "loss": "mse"}}
    assert load_spec(spelled_out).spec == load_spec(with_loss).spec


def test_the_figures_beside_other_searches_are_those_of_the_benchmark() -> None:
    measured = (ROOT / "tests/benchmarks/results.md").read_text()
    assert "oomtune" in measured
    assert measured in (PAGES / "benchmarks.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS + FOR_DEVELOPERS, ids=lambda path: path.stem)
def test_links_and_paths_lead_somewhere_and_nothing_is_left_to_fill_in(document: Path) -> None:
    text = document.read_text()
    assert "OWNER" not in text
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (document.parent / target).exists(), target
    for path in re.findall(r"`((?:oomtune|tests|configs|\.github|\.ci)/[\w./-]*)`", text):
        assert (ROOT / path).exists() or (document == PAGES / "ci.md" and path == "oomtune/"), path


@pytest.mark.parametrize("topic", TOPICS)
def test_each_page_begins_with_a_title_and_a_line_that_fits_the_list_of_topics(topic: str) -> None:
    title, blank, summary, *_ = (PAGES / f"{topic}.md").read_text().splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert summary.endswith(".")
    assert len(summary) <= 64


def test_every_page_is_a_topic_and_ships_with_the_package() -> None:
    assert sorted(TOPICS) == sorted(path.stem for path in PAGES.glob("*.md"))
    assert '"guide/*.md"' in (ROOT / "pyproject.toml").read_text()


def test_the_top_level_holds_only_what_it_should() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {Path(line).parts[0] for line in listed.splitlines()}
    visible = {name for name in top if not name.startswith(".")}
    assert visible == {"LICENSE", "Makefile", "README.md", "configs", "oomtune", "pyproject.toml", "tests"}
    assert top - visible == {".ci", ".github", ".gitignore", ".pre-commit-config.yaml", ".pre-commit-hooks.yaml"}
