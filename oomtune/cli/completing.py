"""What a shell completes: the values of options, and the script that makes it ask."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from oomtune.errors import UsageProblem

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def devices(incomplete: str) -> list[str]:
    return _beginning(incomplete, ("auto", "gpu", "cpu"))


def objectives(incomplete: str) -> list[str]:
    from oomtune.domain import Objective

    return _beginning(incomplete, map(str, Objective))


def gpus(incomplete: str) -> list[str]:
    """The catalogue's cards, each in one word that means it."""
    from oomtune.devices.catalogue import cards, in_one_word

    return _beginning(incomplete, map(in_one_word, cards()))


def _beginning(incomplete: str, values: Iterable[str]) -> list[str]:
    """Those that begin so, in the case in which they were begun: a shell drops what does not."""
    return [incomplete + value[len(incomplete) :] for value in values if value.lower().startswith(incomplete.lower())]


def ask_for_a_named_shell(words: Sequence[str]) -> None:
    """Typer shows and installs what is for the shell that it runs in, and takes no notice of one that is named. To be
    shown another's is asked as that shell's own set-up would ask, through the environment."""
    match words:
        case ["--show-completion", shell] if shell in SHELLS:
            os.environ["_OOMTUNE_COMPLETE"] = f"source_{shell}"
        case ["--show-completion", shell]:
            raise UsageProblem(f"--show-completion {shell}: no such shell", hint=f"expected {', '.join(SHELLS)}")
        case ["--install-completion", shell]:
            raise UsageProblem(
                f"--install-completion {shell}: it is installed for the shell that it is run in, and takes no name",
                hint=f"leave the name out, or put what this prints where {shell} reads it: "
                f"oomtune --show-completion {shell}",
            )
