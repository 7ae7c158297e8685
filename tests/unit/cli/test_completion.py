"""What a shell completes and how it is set up, as the shell asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomtune.cli import completion as completing
from oomtune.devices.catalogue import cards, find_card
from oomtune.domain import Objective
from tests.support.cli import Cli


def completed(cli: Cli, words: str) -> list[str]:
    asked = {"_OOMTUNE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return cli(env=asked).out.split()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("probe --device ", ["auto", "gpu", "cpu"]),
        ("probe --objective ", list(map(str, Objective))),
        ("guide s", ["spec", "search", "scripts"]),
        ("check m.yaml --against T", [card.short_name for card in cards() if card.short_name.startswith("T")]),
    ],
)
def test_the_values_of_options_are_completed(words: str, values: list[str], cli: Cli) -> None:
    assert completed(cli, f"oomtune {words}") == values


def test_every_card_that_is_offered_is_understood_as_itself_in_any_case() -> None:
    for card in cards():
        assert find_card(card.short_name) == card
        assert " " not in card.short_name
    assert "t4" in completing.gpus("t")
    assert set(completing.gpus("")) == {card.short_name for card in cards()}


def test_what_comes_after_the_version_is_completed_and_the_version_is_not_said(cli: Cli) -> None:
    said = completed(cli, "oomtune --version ")
    assert "probe" in said
    assert "oomtune" not in said


FILES = {
    "bash": (".bash_completions/oomtune.sh", "_oomtune_completion() {"),
    "zsh": (".zfunc/_oomtune", "#compdef oomtune"),  # zsh looks for this in the first line only
    "fish": (".config/fish/completions/oomtune.fish", "complete --command oomtune"),
}


@pytest.mark.parametrize("shell", FILES)
def test_what_is_shown_and_installed_is_the_script_of_the_shell_that_is_named(
    shell: str, cli: Cli, tmp_path: Path
) -> None:
    file, begins = FILES[shell]
    shown = cli("--show-completion", shell)
    installed = cli("--install-completion", shell, env={"HOME": str(tmp_path)})
    assert (shown.code, shown.err, installed.code, installed.err) == (0, "", 0, "")
    assert shown.out.startswith(begins)
    assert (tmp_path / file).read_text().strip() == shown.out.strip()
    assert str(tmp_path / file) in installed.out


def test_the_file_that_zsh_loads_at_the_first_tab_answers_it_too(cli: Cli) -> None:
    assert '== _oomtune ]]; then\n  _oomtune_completion "$@"\nfi' in cli("--show-completion", "zsh").out


@pytest.mark.parametrize("flag", ["--show-completion", "--install-completion"])
def test_a_shell_that_can_not_be_served_is_said_to_be_so(flag: str, cli: Cli) -> None:
    ran = cli(flag, "tcsh")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"oomtune: {flag} tcsh: ")
    assert "name one: bash, zsh" in ran.err


def test_completion_that_can_not_be_installed_is_said_to_be_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    ran = cli("--install-completion", "fish", env={"HOME": str(tmp_path / "home")})
    assert ran.code == 5
    assert "can't be written" in ran.err


@pytest.mark.parametrize("command", ["probe", "check", "report", "init", "schema", "diagnose", "explain"])
def test_help_shows_no_types_of_python(command: str, cli: Cli) -> None:
    told = cli(command, "--help", env={"COLUMNS": "80"}).out
    assert [word for word in ("<list", "<path", "<str", "Path]") if word in told] == []
    assert "{" not in told.partition("\n")[0]
    assert max(map(len, told.splitlines())) <= 80


def test_the_help_of_check_has_every_exit_code_and_an_example_of_each_way_to_use_it(cli: Cli) -> None:
    told = " ".join(cli("check", "--help").out.split())
    codes = told.partition("Exit codes: ")[2]
    assert [code for code in (0, 1, 2, 4, 5, 6, 130) if f"{code} " not in codes] == []
    for flag in ("--against T4", "--update", "--junit", "--tolerance"):
        assert f"oomtune check model.tuned.yaml {flag}" in told
