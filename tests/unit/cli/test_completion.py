"""Shell completion: what it offers, and how it is shown and installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomtune.cli.options import complete_gpus
from oomtune.devices.catalogue import cards, find_card
from oomtune.domain import Objective
from tests.support.cli import Cli


def completed(cli: Cli, words: str) -> list[str]:
    asked = {"_OOMTUNE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return cli(env=asked).out.split()


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("re", ["report"]),
        ("report --comp", ["--compare"]),
        ("probe --device ", ["auto", "gpu", "cpu"]),
        ("probe --objective ", list(map(str, Objective))),
        ("guide s", ["spec", "search", "scripts"]),
        ("check m.yaml --against T", [card.short_name for card in cards() if card.short_name.startswith("T")]),
    ],
)
def test_a_shell_completes_commands_options_and_values(words: str, values: list[str], cli: Cli) -> None:
    assert completed(cli, f"oomtune {words}") == values


def test_every_card_that_completion_offers_is_found_again_in_any_case() -> None:
    for card in cards():
        assert find_card(card.short_name) == card
        assert " " not in card.short_name
    assert "t4" in complete_gpus("t")
    assert set(complete_gpus("")) == {card.short_name for card in cards()}


def test_completion_after_version_offers_commands_and_does_not_print_the_version(cli: Cli) -> None:
    offered = completed(cli, "oomtune --version ")
    assert "probe" in offered
    assert "oomtune" not in offered


FILES = {
    "bash": (".bash_completions/oomtune.sh", "_oomtune_completion() {"),
    "zsh": (".zfunc/_oomtune", "#compdef oomtune"),  # zsh looks for this in the first line only
    "fish": (".config/fish/completions/oomtune.fish", "complete --command oomtune"),
}


@pytest.mark.parametrize("shell", FILES)
def test_the_script_that_is_shown_is_the_one_that_is_installed(shell: str, cli: Cli, tmp_path: Path) -> None:
    file, first_words = FILES[shell]
    shown = cli("--show-completion", shell)
    installed = cli("--install-completion", shell, env={"HOME": str(tmp_path)})
    assert (shown.code, shown.err, installed.code, installed.err) == (0, "", 0, "")
    assert shown.out.startswith(first_words)
    assert f"_OOMTUNE_COMPLETE=complete_{shell}" in shown.out
    assert (tmp_path / file).read_text().strip() == shown.out.strip()
    assert str(tmp_path / file) in installed.out


def test_the_file_that_zsh_loads_at_the_first_tab_also_answers_it(cli: Cli) -> None:
    assert '== _oomtune ]]; then\n  _oomtune_completion "$@"\nfi' in cli("--show-completion", "zsh").out


@pytest.mark.parametrize("flag", ["--show-completion", "--install-completion"])
def test_an_unknown_shell_is_bad_usage(flag: str, cli: Cli) -> None:
    ran = cli(flag, "tcsh")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"oomtune: {flag} tcsh: ")
    assert "name one: bash, zsh" in ran.err


def test_a_home_that_is_no_folder_is_an_environment_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    ran = cli("--install-completion", "fish", env={"HOME": str(tmp_path / "home")})
    assert ran.code == 5
    assert "can't be written" in ran.err
