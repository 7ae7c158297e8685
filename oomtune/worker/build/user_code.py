"""The user's own code: found from the spec's folder and the current one, and only where the spec names it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oomtune.domain import Candidate
from oomtune.errors import TrialCrashed

_OFFERED = ("sequence_length", "precision", "batch_size")


def load(name: str, folder: str, key: str) -> Callable[..., Any]:
    """The function or class that `package.module:name` stands for; `key` is the entry of the spec that named it."""
    module_name, _, attribute = name.partition(":")
    found = getattr(load_module(module_name, folder, key), attribute, None)
    if not callable(found):
        raise TrialCrashed(f"{key}: {module_name} has no function {attribute!r}")
    return found  # type: ignore[no-any-return]


def load_module(name: str, folder: str, key: str) -> Any:
    for place in (str(Path.cwd()), folder):
        if place not in sys.path[:2]:
            sys.path.insert(0, place)
    try:
        return importlib.import_module(name)
    except SystemExit as error:
        raise TrialCrashed(
            f"{key}: importing {name!r} ended the process: sys.exit({error.code!r})",
            hint="keep what runs a program under: if __name__ == '__main__':",
        ) from error
    except ModuleNotFoundError as error:
        missing = error.name or name
        if missing != name and not name.startswith(f"{missing}."):
            raise  # the module was found; what it imports was not, and its traceback says where
        raise TrialCrashed(
            f"{key}: no module named {missing!r}", hint=f"looked in {folder} and {Path.cwd()!s}"
        ) from None


def arguments_for(
    function: Callable[..., Any], args: dict[str, Any], candidate: Candidate, name: str
) -> dict[str, Any]:
    """The spec's arguments, and of the candidate's values those that the function takes."""
    accepted = inspect.signature(function).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    offered: dict[str, Any] = {word: getattr(candidate, word) for word in _OFFERED if word in accepted}
    # Without a length to search the function's own default holds; one that insists on being given it gets None.
    if offered.get("sequence_length", 0) is None and not _is_required(accepted["sequence_length"]):
        del offered["sequence_length"]
    if "candidate" in accepted:
        offered["candidate"] = candidate
    unknown = sorted(set(args) - set(accepted))
    if unknown and not takes_all:
        raise TrialCrashed(
            f"model.args: {name} takes no argument {unknown[0]!r}", hint=f"it takes: {', '.join(accepted) or 'none'}"
        )
    missing = [word for word in required_by(function) if word not in offered | args]
    if missing:
        raise TrialCrashed(
            f"model.args: {name} needs {' and '.join(map(repr, missing))}",
            hint="set them in model.args, or give them defaults",
        )
    return offered | args


def takes_length(function: Callable[..., Any]) -> bool:
    """Is it given the length under trial?"""
    return not {"sequence_length", "candidate"}.isdisjoint(inspect.signature(function).parameters)


def required_by(function: Callable[..., Any]) -> list[str]:
    """The arguments that it can't be called without."""
    return [word for word, parameter in inspect.signature(function).parameters.items() if _is_required(parameter)]


def _is_required(parameter: inspect.Parameter) -> bool:
    several = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in several
