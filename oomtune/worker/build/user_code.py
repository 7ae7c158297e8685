"""Import the user's own code that the spec names, from the spec's folder or the current one, and find its arguments."""

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
    """Return the function or class called `package.module:name`. `key` is the entry of the spec that names it."""
    module_name, _, attribute = name.partition(":")
    function = getattr(load_module(module_name, folder, key), attribute, None)
    if not callable(function):
        raise TrialCrashed(
            f"{key}: {module_name} has no function {attribute!r}", hint=f"define {attribute} in it, or correct {key}"
        )
    return function  # type: ignore[no-any-return]


def load_module(name: str, folder: str, key: str) -> Any:
    """Import a module from the spec's folder or the current one."""
    for place in (str(Path.cwd()), folder):
        if place not in sys.path[:2]:
            sys.path.insert(0, place)
    try:
        return importlib.import_module(name)
    except SystemExit as error:
        raise TrialCrashed(
            f"{key}: importing {name!r} ended the process: sys.exit({error.code!r})",
            hint="put the code that runs the program under: if __name__ == '__main__':",
        ) from error
    except ModuleNotFoundError as error:
        missing = error.name or name
        if missing != name and not name.startswith(f"{missing}."):
            raise  # an import inside the module fails; the traceback shows which
        raise TrialCrashed(
            f"{key}: no module named {missing!r}", hint=f"looked in {folder} and {Path.cwd()!s}"
        ) from None


def arguments_for(
    function: Callable[..., Any], args: dict[str, Any], candidate: Candidate, name: str
) -> dict[str, Any]:
    """Return the function's arguments: those of the spec, and the candidate's values that it takes."""
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    offered: dict[str, Any] = {word: getattr(candidate, word) for word in _OFFERED if word in parameters}
    # Without a length under trial the function's own default holds. A function without a default gets None.
    if offered.get("sequence_length", 0) is None and not _is_required(parameters["sequence_length"]):
        del offered["sequence_length"]
    if "candidate" in parameters:
        offered["candidate"] = candidate
    unknown = sorted(set(args) - set(parameters))
    if unknown and not takes_any:
        raise TrialCrashed(
            f"model.args: {name} takes no argument {unknown[0]!r}", hint=f"it takes: {', '.join(parameters) or 'none'}"
        )
    missing = [word for word in required_by(function) if word not in offered | args]
    if missing:
        raise TrialCrashed(
            f"model.args: {name} needs {' and '.join(map(repr, missing))}",
            hint="set them in model.args, or give them defaults",
        )
    return offered | args


def takes_length(function: Callable[..., Any]) -> bool:
    """Return whether the function takes the length under trial."""
    return not {"sequence_length", "candidate"}.isdisjoint(inspect.signature(function).parameters)


def required_by(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that have no default."""
    return [word for word, parameter in inspect.signature(function).parameters.items() if _is_required(parameter)]


def _is_required(parameter: inspect.Parameter) -> bool:
    variadic = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in variadic
