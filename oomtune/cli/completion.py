"""What a shell completes: the values of options, and the script that makes it ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oomtune.errors import OutputNotWritable, UsageProblem

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
_PROGRAM = "oomtune"
_ASKED = "_OOMTUNE_COMPLETE"
# Typer's script only sets completion up when zsh loads it, which it does to answer the first Tab of a session.
_FIRST_TAB = """

if [[ $funcstack[1] == _oomtune ]]; then
  _oomtune_completion "$@"
fi"""


def devices(incomplete: str) -> list[str]:
    return _beginning(incomplete, ("auto", "gpu", "cpu"))


def objectives(incomplete: str) -> list[str]:
    from oomtune.domain import Objective

    return _beginning(incomplete, map(str, Objective))


def gpus(incomplete: str) -> list[str]:
    """The catalogue's cards, each in one word that means it."""
    from oomtune.devices.catalogue import cards

    return _beginning(incomplete, (card.short_name for card in cards()))


def topics(incomplete: str) -> list[str]:
    from oomtune.cli.guide import TOPICS

    return _beginning(incomplete, TOPICS)


def _beginning(incomplete: str, values: Iterable[str]) -> list[str]:
    """Those that begin so, in the case in which they were begun: a shell drops what does not."""
    return [incomplete + value[len(incomplete) :] for value in values if value.lower().startswith(incomplete.lower())]


def shell_set_up(words: Sequence[str]) -> str | None:
    """What to say where completion is to be shown or installed, for the shell that is named or the one that this runs
    in; None where something else is asked for. Typer's own options take no name."""
    match words:
        case ["--show-completion" as flag, *named] if len(named) < 2:
            return _script(_shell(flag, named))
        case ["--install-completion" as flag, *named] if len(named) < 2:
            return _installed(_shell(flag, named))
    return None


def _shell(flag: str, named: Sequence[str]) -> str:
    shell = named[0] if named else _current_shell()
    if shell in SHELLS:
        return shell
    said = f"{flag} {shell}: no such shell" if named else f"{flag}: {shell or 'no shell'} is what this runs in"
    raise UsageProblem(said, hint=f"name one: {', '.join(SHELLS)}")


def _current_shell() -> str | None:
    import shellingham

    try:
        name: str = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        return None
    return name


def _script(shell: str) -> str:
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name=_PROGRAM, complete_var=_ASKED, shell=shell)
    return script + _FIRST_TAB if shell == "zsh" else script


def _installed(shell: str) -> str:
    from typer._completion_shared import install

    try:
        _, path = install(shell=shell, prog_name=_PROGRAM, complete_var=_ASKED)
        if shell == "zsh":
            path.write_text(_script(shell), encoding="utf-8")
    except OSError as error:
        raise OutputNotWritable(f"{error.filename} can't be written: {error.strerror}") from None
    return f"{shell} completion is in {path}; a shell that is started now has it"
